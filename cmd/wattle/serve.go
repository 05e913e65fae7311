// wattle serve: a store, and topics on it, for many clients over the network.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/server"
	"github.com/wattle-es/wattle/server/policy"
	"github.com/wattle-es/wattle/topic"
	"github.com/wattle-es/wattle/topic/remotetopic"
)

// defaultListen is where a server listens that is not told.
const defaultListen = "127.0.0.1:4440"

const serveLong = `Serve makes a store, and topics on it, a network service: gRPC, gRPC-Web, Connect and plain HTTP
with JSON on one port, with HTTP/1.1 and HTTP/2. A client of it is a store again, with --store
https://…, and for any language there are the files of wattle.v1.

Who asks is known by a client certificate (--tls-client-cas), or for development by a token
(--tokens). What one may do stands in a policy (--policy), and what no line of it allows is denied.
With --dev whoever reaches the server may do everything: on loopback and without TLS only.
Certificates, policy and tokens are read again when their files change.

Every flag but --dev is also an environment variable and a field of the file given with --config:
--tls-client-cas is WATTLE_TLS_CLIENT_CAS and {"tls": {"client_cas": […]}}. Flags count first, then
the environment, then the file.

SIGTERM ends it in order: appends in flight are answered, and streams told to go on elsewhere.
Several servers on one store share the partitions of its topics; each must be told with
--advertise how the others reach it, and with --peer-* how it is to reach them.`

// serving is one run of wattle serve.
type serving struct {
	*app
	config    server.Config
	file      string
	dev       bool
	listening func(net.Addr)
}

func (a *app) serveCommand() *cobra.Command {
	s := &serving{app: a}
	c := &cobra.Command{
		Use:   "serve",
		Short: "serve a store and its topics over the network",
		Long:  serveLong,
		Example: `  wattle serve --store file:/var/lib/bank --dev
  wattle cert
  echo 'uri:spiffe://wattle/client * *' > wattle.policy
  wattle serve --store file:/var/lib/bank --tls-cert certs/server.crt --tls-key certs/server.key \
    --tls-client-cas certs/ca.crt --policy wattle.policy
  wattle category list --store 'https://localhost:4440?ca=certs/ca.crt&cert=certs/client.crt&key=certs/client.key'
  curl -d '{}' -H 'Content-Type: application/json' http://127.0.0.1:4440/wattle.v1.AdminService/ListCategories`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.configure(c.Flags()); err != nil {
				return err
			}
			return s.run(c.Context())
		},
	}
	for _, setting := range s.config.Settings() {
		if setting.Name == "store" {
			continue // as for all commands
		}
		f := c.Flags().VarPF(settingFlag{setting}, setting.Flag(), "", setting.Help)
		f.DefValue = "" // in its text, if there is one
		if setting.Bool() {
			f.NoOptDefVal = "true"
		}
	}
	c.Flags().StringVar(&s.file, "config", "", "`FILE` with settings, JSON")
	c.Flags().BoolVar(&s.dev, "dev", false, "whoever reaches it may do everything: on loopback, without TLS")
	return c
}

// settingFlag is a field of the configuration as a flag.
type settingFlag struct{ server.Setting }

func (f settingFlag) Type() string {
	if f.Bool() {
		return "bool"
	}
	word, _, found := strings.Cut(f.Help, " ")
	if found && word == strings.ToUpper(word) && len(word) > 1 {
		return word
	}
	return "value"
}

// configure reads file, environment and flags, each above the one before.
func (s *serving) configure(flags *pflag.FlagSet) error {
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
	file := s.file
	if file == "" {
		file = s.env("WATTLE_CONFIG")
	}
	config := server.Config{}
	if file != "" {
		var err error
		if config, err = server.LoadConfig(file); err != nil {
			return badConfig(err)
		}
	}
	if err := config.FromEnv(s.env); err != nil {
		return badConfig(err)
	}
	for _, setting := range config.Settings() {
		if text, ok := given[setting.Flag()]; ok {
			if err := setting.Set(text); err != nil {
				return badConfig(err)
			}
		}
	}
	if config.Listen == "" {
		config.Listen = defaultListen
	}
	if s.store == "" {
		s.store = config.Store // the environment's is in it
	}
	s.config = config
	return nil
}

func badConfig(err error) error {
	return &usageError{"a configuration", err.Error(), "see: wattle serve --help"}
}

// options are those of the server.
func (s *serving) options(logger *slog.Logger) (server.Options, error) {
	o, err := s.config.Options()
	if err != nil {
		return o, badConfig(err)
	}
	if s.dev {
		if o.TLS != nil || o.Policy != nil || o.Tokens != "" || o.Insecure {
			return o, &usageError{"--dev alone", "it with TLS, a policy, tokens or --insecure", "leave out --dev: what is to be secure is not for everybody"}
		}
		all, err := policy.Parse("anonymous * *\n")
		if err != nil {
			return o, err
		}
		o.Policy, o.Anonymous = policy.Fixed(all), true
	}
	if o.Policy == nil {
		return o, &usageError{"--policy, a file that says who may do what", "none", "see: wattle policy --help; to try it out on this machine: --dev"}
	}
	if (o.TLS == nil || len(o.TLS.ClientCAs) == 0) && o.Tokens == "" && !o.Anonymous {
		return o, &usageError{"a way to know who asks: --tls-client-cas, --tokens or --anonymous", "none", "with a policy alone everybody is refused"}
	}
	if o.TLS == nil && !o.Insecure && !loopback(s.config.Listen) {
		return o, &usageError{"--tls-cert and --tls-key, or an address on loopback to listen on", s.config.Listen + " without TLS", "--insecure is for who accepts that anybody on the way can read and change it"}
	}
	o.Logger = logger
	return o, nil
}

// loopback says that only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host == "localhost" || ip != nil && ip.IsLoopback() // what is no address is told of by who listens
}

// run serves until ctx ends.
func (s *serving) run(ctx context.Context) error {
	logger, err := s.serverLogger()
	if err != nil {
		return err
	}
	o, err := s.options(logger)
	if err != nil {
		return err
	}
	if err := s.reachable(); err != nil {
		return err
	}
	metrics, err := server.NewMetrics()
	if err != nil {
		return err
	}
	defer metrics.Close(context.WithoutCancel(ctx))
	o.MeterProvider = metrics.Provider()
	t, err := s.target("")
	if err != nil {
		return err
	}
	store, err := t.Open(ctx, &open.Options{Create: true, NATS: s.config.NATS, Logger: logger})
	if err != nil {
		return err
	}
	defer store.Close()
	o.Ready = server.ProbeStore(store.Store, "server/ready")
	served, err := server.New(o)
	if err != nil {
		return badConfig(err)
	}
	broker, err := topic.NewBroker(ctx, store.Store, &topic.Options{Address: s.config.Advertise, LeaseTTL: time.Duration(s.config.LeaseTTL), Logger: logger})
	if err != nil {
		return err
	}
	defer broker.Close()
	closeTopics, err := s.mount(served, t, store, broker, logger)
	if err != nil {
		return err
	}
	defer closeTopics()
	return s.listen(ctx, t.String(), served, broker, metrics)
}

// mount adds the services.
func (s *serving) mount(served *server.Server, t *open.Target, store *open.Store, broker *topic.Broker, logger *slog.Logger) (closing func() error, err error) {
	visible := func(ctx context.Context, c eventstore.Category) bool { return served.Visible(ctx, string(c)) }
	failed := func(ctx context.Context, op string, err error) {
		if e, ok := errors.AsType[*eventstore.Error](err); ok {
			logger.DebugContext(ctx, "call failed", "op", op, "kind", e.Kind, "identity", server.Identity(ctx))
			return
		}
		if ctx.Err() != nil {
			return // who asked has gone
		}
		logger.WarnContext(ctx, "call failed", "op", op, "identity", server.Identity(ctx), "error", fmt.Sprintf("%T", err))
	}
	log := remotelog.NewService(store.Store, &remotelog.ServiceOptions{Visible: visible, Failed: failed, Hub: store.Hub, Options: served.HandlerOptions(),
		Examine: t.Examine, Streams: remotelog.StreamOptions{Waiter: waiter(store)}})
	for _, h := range log.Handlers() {
		if err := served.Mount(h.Path, h); err != nil {
			return nil, err
		}
	}
	topics := remotetopic.NewService(broker, &remotetopic.ServiceOptions{Visible: visible, Failed: failed, Forward: s.peer, Options: served.HandlerOptions()})
	path, h := topics.Handler()
	return topics.Close, served.Mount(path, h)
}

// reachable looks at what is only used when other servers forward to this one, or this one
// to others: else it is a publisher who hears of a mistake.
func (s *serving) reachable() error {
	address := s.config.Advertise
	if address == "" {
		if s.config.Peer.CA != "" || s.config.Peer.Cert != "" {
			return &usageError{"--advertise with --peer-*: how other servers reach this one", "none", ""}
		}
		return nil
	}
	p, err := s.peer(address)
	if err != nil {
		return &usageError{"--advertise and --peer-* that fit", err.Error(), "--advertise is a URL, as https://host:4440"}
	}
	return p.Close()
}

// peer makes a client of another server.
func (s *serving) peer(address string) (remotetopic.Peer, error) {
	transport, err := open.Transport(address, s.config.Peer.CA, s.config.Peer.Cert, s.config.Peer.Key)
	if err != nil {
		return nil, err
	}
	return remotetopic.NewPeer(address, &remotetopic.Options{Transport: transport})
}

// waiter waits for the projectors whose checkpoints are kept beside the store or in it.
func waiter(store *open.Store) func(context.Context, string, eventstore.Token) error {
	return func(ctx context.Context, name string, t eventstore.Token) error {
		keepers, err := store.Keepers(ctx, nil, "")
		if err != nil {
			return err
		}
		for _, k := range keepers {
			versions, err := k.Versions(ctx, name)
			if err != nil {
				return err
			}
			if len(versions) > 0 {
				_, err = projector.NewReader(store.Store, name, k).Wait(ctx, t)
				return err
			}
		}
		return &eventstore.Error{Kind: remotelog.ErrNoSuchProjector, Op: "wait", Wanted: "projector " + name, Found: "none of that name", Hint: "it is registered when it first runs"}
	}
}

// listen serves on all listeners, with the broker beside, until ctx ends or one fails.
func (s *serving) listen(ctx context.Context, store string, served *server.Server, broker *topic.Broker, metrics *server.Metrics) error {
	l, err := net.Listen("tcp", s.config.Listen)
	if err != nil {
		return &usageError{"an address to listen on", err.Error(), "give another one with --listen"}
	}
	ending, end := context.WithCancelCause(ctx)
	defer end(nil)
	broking, release := context.WithCancel(context.WithoutCancel(ctx)) // to the end of the drain: what was taken is still written
	defer release()
	done := make(chan error, 3)
	running := 1
	if s.config.Ops != "" {
		ops, err := net.Listen("tcp", s.config.Ops)
		if err != nil {
			_ = l.Close()
			return &usageError{"an address for --ops", err.Error(), ""}
		}
		running++
		go func() { done <- served.ServeOps(broking, ops, metrics) }()
	}
	brokerDone := make(chan error, 1)
	go func() {
		err := broker.Run(broking)
		if broking.Err() == nil {
			end(fmt.Errorf("topics: %w", err))
		}
		brokerDone <- err
	}()
	s.console.say(fmt.Sprintf("wattle: serving %s at %s", store, l.Addr()))
	if s.listening != nil {
		s.listening(l.Addr())
	}
	err = served.Serve(ending, l)
	release()
	<-brokerDone
	for range running - 1 {
		err = errors.Join(err, <-done)
	}
	if cause := context.Cause(ending); cause != nil && ctx.Err() == nil {
		err = errors.Join(err, cause)
	}
	return err
}

// serverLogger logs to stderr as the configuration says.
func (s *serving) serverLogger() (*slog.Logger, error) {
	level := slog.LevelInfo
	if text := s.config.Log.Level; text != "" {
		if err := level.UnmarshalText([]byte(text)); err != nil {
			return nil, &usageError{"--log-level debug, info, warn or error", fmt.Sprintf("%q", text), ""}
		}
	}
	var w io.Writer = s.console
	o := &slog.HandlerOptions{Level: level}
	if s.config.Log.JSON {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}
