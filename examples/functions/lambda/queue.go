// Batches of SQS: commands in messages, each with an outcome of its own.

package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/wattle-es/wattle/handler/httpcarrier"
)

// queue has the command in each message executed by h, one after the other. Messages of
// which nothing is known, or that are no commands, are listed as failed: the queue delivers
// them again, and in the end to its dead letters. A command that a rule refuses is done.
// A message that comes again, whatever the reason, has no second effect: the event's id
// is the command's. In a FIFO queue what follows a failed message in its group is left
// for the next delivery, so that order holds.
func queue(h http.Handler) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return func(ctx context.Context, e events.SQSEvent) (out events.SQSEventResponse, err error) {
		out.BatchItemFailures = []events.SQSBatchItemFailure{} // an absent list means that all is well, too, but say so
		stopped := map[string]bool{}
		for _, m := range e.Records {
			group := m.Attributes["MessageGroupId"]
			if group != "" && stopped[group] || ctx.Err() != nil || !execute(ctx, h, m) {
				stopped[group] = true
				out.BatchItemFailures = append(out.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
			}
		}
		return out, nil
	}
}

// execute says if a message is done with.
func execute(ctx context.Context, h http.Handler, m events.SQSMessage) bool {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://queue/", strings.NewReader(m.Body))
	if err != nil {
		return false
	}
	q.Header.Set("Content-Type", httpcarrier.StructuredType)
	a := newAnswer()
	h.ServeHTTP(a, q)
	if a.status == http.StatusOK {
		return true
	}
	slog.WarnContext(ctx, "command not executed", "message", m.MessageId, "status", a.status, "reply", a.body.String())
	return a.status == http.StatusUnprocessableEntity
}
