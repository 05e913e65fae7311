// wattle cert: an authority and certificates for development.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/server/devcert"
)

// maxDays is how long a certificate for development may be good for.
const maxDays = 825

// certs is what the flags of wattle cert say.
type certs struct {
	app              *app
	dir              string
	servers, clients []string
	days             int
	force            bool
	made             []certJSON
}

// certJSON is a file as -o json prints it.
type certJSON struct {
	Name  string    `json:"name"`
	Cert  string    `json:"cert"`
	Key   string    `json:"key"`
	For   string    `json:"for"`
	Names []string  `json:"names"`
	Until time.Time `json:"until"`
}

func (a *app) certCommand() *cobra.Command {
	m := &certs{app: a}
	c := &cobra.Command{
		Use:   "cert",
		Short: "make a certificate authority and certificates for development",
		Long: `Cert makes an authority, a certificate for a server on this machine and one for a client, as
ca, server and client .crt and .key in a folder; with --server or --client it makes those instead.
An authority that is in the folder already signs again. Keys are readable for their owner alone, and
nothing is overwritten, unless --force is given; the authority never is.

A server knows a client by the URI, else the host name, else the e-mail address of its certificate:
uri:spiffe://wattle/client is how the policy names the one that is made here.

This is for development: in production take certificates from what issues yours.`,
		Example: `  wattle cert
  wattle cert --dir certs --server api=api.bank.example,10.0.0.7 --client teller=spiffe://bank/teller`,
		Args: arguments(),
		RunE: func(*cobra.Command, []string) error { return m.run(time.Now()) },
	}
	flags := c.Flags()
	flags.StringVar(&m.dir, "dir", "certs", "`FOLDER` for the files")
	flags.StringArrayVar(&m.servers, "server", nil, "`FILE=HOST,HOST…`: a certificate for a server; may be given several times")
	flags.StringArrayVar(&m.clients, "client", nil, "`FILE=IDENTITY`: a certificate for a client: a URI, host name or e-mail address; may be given several times")
	flags.IntVar(&m.days, "days", int(devcert.Lifetime/(24*time.Hour)), "how many days the certificates are good for")
	flags.BoolVar(&m.force, "force", false, "overwrite certificates, but for the authority's")
	_ = c.MarkFlagDirname("dir") // the flag is there
	return c
}

func (m *certs) run(now time.Time) error {
	if m.days < 1 || m.days > maxDays {
		return &usageError{fmt.Sprintf("--days of 1 to %d", maxDays), fmt.Sprint(m.days), ""}
	}
	if len(m.servers)+len(m.clients) == 0 {
		m.servers, m.clients = []string{"server=localhost,127.0.0.1,::1"}, []string{"client=spiffe://wattle/client"}
	}
	wanted, err := m.requests()
	if err != nil {
		return err
	}
	ca, err := m.authority(now)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		w.Lifetime = time.Duration(m.days) * 24 * time.Hour
		p, err := ca.Issue(w.Request, now)
		if err != nil {
			return &usageError{"names for --server and --client", strings.TrimPrefix(err.Error(), "devcert: "), ""}
		}
		what := map[bool]string{true: "server", false: "client"}[w.Server]
		if err := m.save(p, w.file, what, w.Names, m.force); err != nil {
			return err
		}
	}
	return m.print()
}

// wantedCert is what one flag asks for.
type wantedCert struct {
	devcert.Request
	file string
}

func (m *certs) requests() (all []wantedCert, err error) {
	for i, list := range [][]string{m.servers, m.clients} {
		for _, text := range list {
			file, names, _ := strings.Cut(text, "=")
			wanted := map[bool]string{true: "--server FILE=HOST,HOST…", false: "--client FILE=IDENTITY"}[i == 0]
			if file == "" || names == "" || file == "ca" || strings.ContainsAny(file, `/\.`) || i == 1 && strings.Contains(names, ",") {
				return nil, &usageError{wanted, fmt.Sprintf("%.100q", text), "FILE is a name without a folder or an ending"}
			}
			all = append(all, wantedCert{devcert.Request{Names: strings.Split(names, ","), Server: i == 0, Client: i == 1}, file})
		}
	}
	return all, nil
}

// authority is the one in the folder, or a new one.
func (m *certs) authority(now time.Time) (*devcert.Authority, error) {
	p, err := devcert.Load(m.dir, "ca")
	if err == nil {
		return devcert.Parse(p)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	cert, key := devcert.Files(m.dir, "ca")
	for file, other := range map[string]string{cert: key, key: cert} {
		if _, err := os.Stat(file); err == nil {
			return nil, &refusal{"an authority in " + cert + " and " + key, "none in " + other, "bring it back, or give another --dir: a new authority would not be trusted where this one is"}
		}
	}
	ca, err := devcert.New("wattle development authority", now, 0)
	if err != nil {
		return nil, err
	}
	return ca, m.save(ca.Pair, "ca", "authority", nil, false)
}

func (m *certs) save(p devcert.Pair, name, what string, names []string, force bool) error {
	err := p.Save(m.dir, name, force)
	if errors.Is(err, fs.ErrExist) {
		return &refusal{"to make " + filepath.Join(m.dir, name) + ".crt and .key", "one that is there", "give --force to overwrite certificates, or another --dir"}
	}
	if err != nil {
		return err
	}
	pair, err := p.TLS()
	if err != nil {
		return err
	}
	cert, key := devcert.Files(m.dir, name)
	m.made = append(m.made, certJSON{name, cert, key, what, append([]string{}, names...), pair.Leaf.NotAfter.UTC()})
	return nil
}

func (m *certs) print() error {
	rows := [][]string{{"CERTIFICATE", "KEY", "FOR", "UNTIL", "NAMES"}}
	for _, c := range m.made {
		rows = append(rows, []string{c.Cert, c.Key, c.For, c.Until.Format(time.DateOnly), printable(strings.Join(c.Names, " "))})
	}
	return m.app.printList(m.made, rows)
}
