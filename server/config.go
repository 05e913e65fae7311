// The configuration of a server process: one file, environment and flags.

package server

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/wattle-es/wattle/server/policy"
)

// Config is what a server process is told. In its file, JSON, the fields have the names of
// their tags. The same names, in upper case with '_' for '.' and '-' behind "WATTLE_", are
// those of environment variables, and of flags with '-' for '.' and '_': "tls.client_cas"
// is WATTLE_TLS_CLIENT_CAS and --tls-client-cas. Flags count before the environment, and
// that before the file.
type Config struct {
	Store     string `json:"store" help:"URL of the store"`
	Listen    string `json:"listen" help:"ADDRESS to listen on, as 127.0.0.1:4440"`
	Ops       string `json:"ops" help:"ADDRESS for health and metrics, apart from the calls; none without"`
	Advertise string `json:"advertise" help:"URL under which other servers and clients reach this one"`
	Insecure  bool   `json:"insecure" help:"without TLS, listen on addresses that other machines reach"`

	NATS     string   `json:"nats" help:"URL of a NATS server that carries announcements between servers"`
	LeaseTTL Duration `json:"lease_ttl" help:"how long a server that is silent keeps its partitions (default 10s)"`
	Peer     struct {
		CA   string `json:"ca" help:"FILE with the authority of the other servers, PEM"`
		Cert string `json:"cert" help:"FILE with this server's certificate as a client of the others, PEM"`
		Key  string `json:"key" help:"FILE with its key, PEM"`
	} `json:"peer"`

	TLS struct {
		Cert      string   `json:"cert" help:"FILE with the server's certificate, PEM"`
		Key       string   `json:"key" help:"FILE with its key, PEM"`
		ClientCAs []string `json:"client_cas" help:"FILES with authorities that sign clients, PEM"`
		Revoked   string   `json:"revoked" help:"FILE with client certificates that count no longer"`
		Min       string   `json:"min" help:"lowest version: 1.3 or 1.2"`
		Optional  bool     `json:"optional" help:"let in clients without a certificate, who need a token then"`
	} `json:"tls"`

	Policy    string `json:"policy" help:"FILE that says who may do what; without one nobody may anything"`
	Tokens    string `json:"tokens" help:"FILE with bearer tokens, for development"`
	Anonymous bool   `json:"anonymous" help:"let in who has neither certificate nor token, as anonymous"`
	Proxy     struct {
		Header     string   `json:"header" help:"NAME of the header in which a proxy names the real caller"`
		Identities []string `json:"identities" help:"identities of the proxies that are believed"`
	} `json:"proxy"`
	Reflection     bool `json:"reflection" help:"serve gRPC reflection"`
	DistrustTraces bool `json:"distrust_traces" help:"link callers' traces instead of continuing them"`

	Limits struct {
		MessageBytes         int      `json:"message_bytes" help:"most bytes of a message, unpacked"`
		Ratio                int      `json:"ratio" help:"most times its size that a packed message may have unpacked"`
		Elements             int      `json:"elements" help:"most parts of a message"`
		InFlightBytes        int64    `json:"in_flight_bytes" help:"most bytes of all requests and answers in memory"`
		Reads                int      `json:"reads" help:"most pages read at once for calls"`
		HeaderBytes          int      `json:"header_bytes" help:"most bytes of a request's header"`
		Connections          int      `json:"connections" help:"most connections"`
		StreamsPerConnection int      `json:"streams_per_connection" help:"most calls at once on an HTTP/2 connection"`
		StreamsPerIdentity   int      `json:"streams_per_identity" help:"most streams of one identity"`
		Calls                int      `json:"calls" help:"most calls at once"`
		HeaderTimeout        Duration `json:"header_timeout" help:"for the handshake and a header"`
		ReadTimeout          Duration `json:"read_timeout" help:"for a whole request"`
		WriteTimeout         Duration `json:"write_timeout" help:"for one write"`
		IdleTimeout          Duration `json:"idle_timeout" help:"of a connection without calls"`
		UnaryTimeout         Duration `json:"unary_timeout" help:"of a unary call"`
		DrainTimeout         Duration `json:"drain_timeout" help:"of ending"`
	} `json:"limits"`

	Log struct {
		Level string `json:"level" help:"debug, info, warn or error"`
		JSON  bool   `json:"json" help:"log lines as JSON"`
	} `json:"log"`
}

// Duration is a time.Duration written as "1m30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("wanted a duration as 1m30s, found %.50q", text)
	}
	*d = Duration(v)
	return nil
}

// LoadConfig reads a file of at most 1 MiB. It is strict: a name that is not known or is
// there twice, and anything behind the object, are errors that name the line.
func LoadConfig(file string) (Config, error) {
	var c Config
	text, err := readBounded(file)
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	if err := c.parse(text); err != nil {
		return Config{}, fmt.Errorf("config: %s: %w", file, err)
	}
	return c, nil
}

func (c *Config) parse(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := twice(d, ""); err != nil {
		return at(text, d.InputOffset(), err)
	}
	d = json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		offset := d.InputOffset()
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			offset, err = e.Offset, fmt.Errorf("%s: wanted a value of type %s, found a %s", e.Field, e.Type, e.Value)
		}
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = e.Offset
		}
		return at(text, offset, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return at(text, d.InputOffset(), errors.New("wanted one object, found more"))
	}
	return nil
}

func at(text []byte, offset int64, err error) error {
	offset = min(max(offset, 0), int64(len(text)))
	return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:offset], []byte("\n")), err)
}

// twice says which name of an object is there twice, anywhere in the next value.
func twice(d *json.Decoder, path string) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		seen := map[string]bool{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return err
			}
			key := strings.ToLower(fmt.Sprint(name)) // as encoding/json matches them
			if seen[key] {
				return fmt.Errorf("%.100q is there twice", path+fmt.Sprint(name))
			}
			seen[key] = true
			if err := twice(d, path+fmt.Sprint(name)+"."); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('['):
		for d.More() {
			if err := twice(d, path); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// Setting is one field of a Config.
type Setting struct {
	Name  string // as "tls.client_cas"
	Help  string
	value reflect.Value
}

// Env is the name of its environment variable.
func (s Setting) Env() string {
	return "WATTLE_" + strings.ToUpper(strings.ReplaceAll(s.Name, ".", "_"))
}

// Flag is the name of its flag.
func (s Setting) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Name) }

// Bool says that it is true or false.
func (s Setting) Bool() bool { return s.value.Kind() == reflect.Bool }

// String is its value; lists are separated by commas.
func (s Setting) String() string {
	if list, ok := s.value.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(s.value.Interface())
}

// Set parses a value. The error does not repeat it.
func (s Setting) Set(text string) error {
	wrong := func(wanted string) error { return fmt.Errorf("%s: wanted %s", s.Name, wanted) }
	if u, ok := s.value.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if u.UnmarshalText([]byte(text)) != nil {
			return wrong("a duration as 1m30s")
		}
		return nil
	}
	switch s.value.Kind() {
	case reflect.Bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return wrong("true or false")
		}
		s.value.SetBool(v)
	case reflect.Int, reflect.Int64:
		v, err := strconv.ParseInt(text, 10, s.value.Type().Bits())
		if err != nil || v < 0 {
			return wrong("a number of at least 0")
		}
		s.value.SetInt(v)
	case reflect.Slice:
		s.value.Set(reflect.ValueOf(strings.Split(text, ",")))
	default:
		s.value.SetString(text)
	}
	return nil
}

// Settings are all fields, to be set by name: for environment and flags.
func (c *Config) Settings() []Setting { return settings(reflect.ValueOf(c).Elem(), "") }

func settings(v reflect.Value, prefix string) (all []Setting) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := prefix + f.Tag.Get("json")
		if v.Field(i).Kind() == reflect.Struct {
			all = append(all, settings(v.Field(i), name+".")...)
			continue
		}
		all = append(all, Setting{name, f.Tag.Get("help"), v.Field(i)})
	}
	return all
}

// FromEnv sets what the environment says; what is empty there says nothing.
func (c *Config) FromEnv(env func(string) string) error {
	for _, s := range c.Settings() {
		if text := env(s.Env()); text != "" {
			if err := s.Set(text); err != nil {
				return fmt.Errorf("config: %s: %w", s.Env(), err)
			}
		}
	}
	return nil
}

// Options makes Options of it, and reads the policy. What a file cannot say (Ready, Logger
// and providers) is left to the caller.
func (c *Config) Options() (o Options, err error) {
	switch {
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		return o, errors.New("config: tls: wanted cert and key, found one of them")
	case c.TLS.Cert == "" && (len(c.TLS.ClientCAs) > 0 || c.TLS.Revoked != "" || c.TLS.Min != "" || c.TLS.Optional):
		return o, errors.New("config: tls: wanted cert and key, found settings of TLS without")
	case c.TLS.Min != "" && c.TLS.Min != "1.2" && c.TLS.Min != "1.3":
		return o, fmt.Errorf("config: tls.min: wanted 1.3 or 1.2, found %.20q", c.TLS.Min)
	case c.TLS.Revoked != "" && len(c.TLS.ClientCAs) == 0:
		return o, errors.New("config: tls.revoked: wanted client_cas with it, found none")
	case len(c.TLS.ClientCAs) > 0 && !c.TLS.Optional && (c.Tokens != "" || c.Anonymous):
		return o, errors.New("config: tls.optional: wanted it with tokens or anonymous, found that everybody must have a certificate")
	case (c.Peer.Cert == "") != (c.Peer.Key == ""):
		return o, errors.New("config: peer: wanted cert and key, found one of them")
	case (c.Proxy.Header == "") != (len(c.Proxy.Identities) == 0):
		return o, errors.New("config: proxy: wanted header and identities, found one of them")
	case c.Proxy.Header != "" && len(c.TLS.ClientCAs) == 0:
		return o, errors.New("config: proxy: wanted tls.client_cas with it: a proxy is known by its certificate")
	}
	if c.TLS.Cert != "" {
		o.TLS = &TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, ClientCAs: c.TLS.ClientCAs, Revoked: c.TLS.Revoked, Min12: c.TLS.Min == "1.2", Optional: c.TLS.Optional}
	}
	if c.Proxy.Header != "" {
		o.Proxy = &Proxy{Header: c.Proxy.Header, Identities: c.Proxy.Identities}
	}
	if c.Policy != "" {
		if o.Policy, err = policy.Follow(c.Policy); err != nil {
			return o, fmt.Errorf("config: %s: %w", c.Policy, err)
		}
	}
	o.Insecure, o.Tokens, o.Anonymous, o.Reflection, o.DistrustTraces = c.Insecure, c.Tokens, c.Anonymous, c.Reflection, c.DistrustTraces
	l := c.Limits
	o.Limits = Limits{MessageBytes: l.MessageBytes, Ratio: l.Ratio, Elements: l.Elements, InFlightBytes: l.InFlightBytes, Reads: l.Reads, HeaderBytes: l.HeaderBytes, Connections: l.Connections,
		StreamsPerConnection: l.StreamsPerConnection, StreamsPerIdentity: l.StreamsPerIdentity, Calls: l.Calls, HeaderTimeout: time.Duration(l.HeaderTimeout),
		ReadTimeout: time.Duration(l.ReadTimeout), WriteTimeout: time.Duration(l.WriteTimeout), IdleTimeout: time.Duration(l.IdleTimeout),
		UnaryTimeout: time.Duration(l.UnaryTimeout), DrainTimeout: time.Duration(l.DrainTimeout)}
	return o, nil
}
