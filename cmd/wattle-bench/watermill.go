// Watermill's SQL Pub/Sub: a queue in a table per topic.

package main

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/wattle-es/wattle/eventstore"
)

const watermillModule = "github.com/ThreeDotsLabs/watermill-sql/v4"

type watermillStore struct {
	*inGo
	db        wsql.Beginner
	schema    wsql.DefaultPostgreSQLSchema
	publisher *wsql.Publisher
}

func openWatermill(ctx context.Context, s *setup) (store, error) {
	g, err := openPool(ctx, s, `"watermill_`+category+`"`)
	if err != nil {
		return nil, err
	}
	w := &watermillStore{inGo: g, db: wsql.BeginnerFromPgx(g.pool), schema: wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: page}}
	w.publisher, err = wsql.NewPublisher(w.db, wsql.PublisherConfig{SchemaAdapter: w.schema, AutoInitializeSchema: true}, watermill.NopLogger{})
	if err != nil {
		return w, err
	}
	sub, err := w.subscriber("first") // it makes the tables, which count needs before the first append
	if err != nil {
		return w, err
	}
	defer sub.Close()
	return w, sub.SubscribeInitialize(category)
}

func (w *watermillStore) subscriber(group string) (*wsql.Subscriber, error) {
	return wsql.NewSubscriber(w.db, wsql.SubscriberConfig{ConsumerGroup: group, SchemaAdapter: w.schema,
		OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true}, watermill.NopLogger{})
}

func (w *watermillStore) publish(ctx context.Context, stream, events int) error {
	messages := make([]*message.Message, events)
	for i := range messages {
		messages[i] = message.NewMessageWithContext(ctx, eventstore.NewUUID().String(), w.payload(stream+i))
		messages[i].Metadata.Set("type", eventType)
	}
	return w.publisher.Publish(category, messages...)
}

func (w *watermillStore) appends(ctx context.Context, writers, k int, d time.Duration) (sample, error) {
	return drive(ctx, writers, k, d, func(ctx context.Context, stream int) error { return w.publish(ctx, stream, 1) })
}

func (w *watermillStore) fill(ctx context.Context) error {
	for stream := range w.streams {
		if err := w.publish(ctx, stream, w.entries); err != nil {
			return err
		}
	}
	return nil
}

// catchUp is a new consumer group that acknowledges every message.
func (w *watermillStore) catchUp(ctx context.Context) (sample, error) {
	sub, err := w.subscriber(eventstore.NewUUID().String())
	if err != nil {
		return sample{}, err
	}
	defer sub.Close()
	return once(func() (n int, err error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		messages, err := sub.Subscribe(ctx, category)
		if err != nil {
			return 0, err
		}
		for m := range messages {
			m.Ack()
			if n++; n == w.streams*w.entries {
				return n, nil
			}
		}
		return n, ctx.Err()
	})
}

func (w *watermillStore) version() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == watermillModule {
				return "watermill-sql " + m.Version
			}
		}
	}
	return "watermill-sql"
}
