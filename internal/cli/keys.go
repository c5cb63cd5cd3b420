package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/server"
)

func (a *app) keysCommand() *cobra.Command {
	return group("keys", "API keys", "",
		a.keysCreate(),
		a.resource(call{
			use: "list", short: "List your API keys", path: "/api-keys", member: "apiKeys",
			columns: []column{
				{"ID", "id"}, {"NAME", "name"}, {"KEY", "prefix"}, {"TAIL", "tail"}, {"VERSION", "version"}, {"STATUS", "status"},
				{"MADE BY", "madeBy"}, {"RIGHTS", "rights"}, {"LAST USED", "lastUsedAt"}, {"EXPIRES", "expiresAt"},
			},
		}),
		a.get("get ID", "Show an API key", "/api-keys/ID"),
		a.resource(call{
			use: "update ID", short: "Change the name or the API version of a key",
			method: http.MethodPatch, path: "/api-keys/ID",
			flags: []flag{
				{"name", "name", cleared(word), "new name"},
				{"api-version", "version", word, "new pinned API version"},
			},
		}),
		a.keysRotate(),
		a.keysSetPrefix(),
		a.resource(call{
			use: "revoke ID", short: "End an API key, and what it made",
			long: `End an API key at once, with what it made: API keys, access tokens, and programs that were let in with it. Holds that are open
still settle. The answer counts what ended.

With --keep what it made stays, and your own key becomes its parent: it must have the rights of that, and end no earlier.`,
			method: http.MethodDelete, path: "/api-keys/ID",
			flags: []flag{{"keep", "keep", toggle, "keep what the key made"}},
		}),
	)
}

func (a *app) keysCreate() *cobra.Command {
	var (
		cfg       server.Config
		local     bool
		key       server.KeyRequest
		expiresIn string
		rights    []string
		ends      string
	)
	c := command("create", "Create an API key", nil)
	c.Long = `Create an API key. It is shown this once.

With --local the key is made on the database itself, beside the service or while it is stopped; the account is made on its
first use. --init makes a database that does not exist, before the first start of the service. An older one is not
migrated.

The rights are read, sell, spend, manage, money, keys, members and export. A key that another key makes has at most the rights of that
one, never members or export, ends no later, and ends with it.`
	c.Example = "toll keys create --name ci --rights read,sell\ntoll keys create --local --data ./toll-data --account alice -o json"
	f := c.Flags()
	f.StringVar(&key.Name, "name", "", "name of the key")
	f.StringVar(&expiresIn, "expires-in", "", "life: seconds, or 12h, 30m; default without end")
	f.StringSliceVar(&rights, "rights", nil, "rights of the key, with commas between; default all that can be given")
	f.StringVar(&ends, "ends", "", "end of the key, such as 2027-01-31T00:00:00Z, in place of --expires-in")
	f.StringVar(&key.Version, "api-version", "", "pinned API version; default the current one")
	f.StringVar(&key.Prefix, "prefix", "", "prefix of the key, one that the service uses")
	f.BoolVar(&local, "local", false, "work on the database of this machine")
	f.StringVar(&key.Account, "account", "", "name of the account, with --local")
	f.BoolVar(&key.Operator, "operator", false, "make the account an operator, who may move the clock of a sandbox, with --local")
	f.BoolVar(&key.Init, "init", false, "make the database when there is none, with --local")
	storeFlags(c, &cfg)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		life, err := seconds("expires-in", expiresIn)
		if err != nil {
			return err
		}
		if key.Rights, err = rightsIn(cmd, rights); err != nil {
			return err
		}
		if ends != "" {
			if life > 0 {
				return usagef("--ends stands beside --expires-in")
			}
			if key.Ends, err = time.Parse(time.RFC3339, ends); err != nil {
				return usagef("--ends must be a time such as 2027-01-31T00:00:00Z; got %q", ends)
			}
		}
		if !local {
			if err := onlyLocal(cmd, "account", "operator", "init"); err != nil {
				return err
			}
			in := body{}
			in.text("name", key.Name)
			in.text("version", key.Version)
			in.text("prefix", key.Prefix)
			if key.Rights != nil {
				in["rights"] = key.Rights
			}
			in.text("ends", ends)
			if life > 0 {
				in["expiresInSecs"] = int64(life / time.Second)
			}
			got, err := a.call(cmd.Context(), http.MethodPost, "/api-keys", nil, in)
			if err != nil {
				return err
			}
			return a.made(got, "key")
		}
		if key.Account == "" {
			return usagef("toll keys create --local needs --account")
		}
		key.ExpiresIn = life
		cfg.Release = release()
		record, err := server.CreateLocalKey(cmd.Context(), cfg, key)
		if errors.Is(err, server.ErrNoDatabase) || errors.Is(err, server.ErrNoSchema) {
			return fmt.Errorf("%w: start toll serve first, correct --data, or make one with --init", err)
		}
		if err != nil {
			return err
		}
		return a.made(record, "key")
	}
	return c
}

// onlyLocal refuses flags that go with --local: these, and those of the database.
func onlyLocal(cmd *cobra.Command, names ...string) error {
	for _, name := range append(names, "data", "database", "master-key-file", "environment", "key-prefix") {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return usagef("--%s goes with --local", name)
		}
	}
	return nil
}

// rightsIn reads the words of --rights; nil without the flag.
func rightsIn(cmd *cobra.Command, words []string) (toll.Rights, error) {
	if !cmd.Flags().Changed("rights") {
		return nil, nil
	}
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	rights, err := toll.ParseRights(words)
	if err != nil || len(rights) == 0 {
		return nil, usagef("--rights must be words of %s", strings.Join(strings.Fields(toll.AllRights().String()), ","))
	}
	return rights, nil
}

// keysRotate has --local only so that nobody takes it for a change of an API key of theirs.
func (a *app) keysRotate() *cobra.Command {
	var local, statements bool
	c := a.storeCommand("rotate-signing", "Change the key that signs API keys and access tokens", func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		if !local {
			return usagef("signing keys are rotated on the database itself: add --local")
		}
		rotate := server.RotateSigningKey
		if statements {
			rotate = server.RotateStatementKey
		}
		rotation, err := rotate(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		return a.show(rotation)
	})
	c.Long = `Let the next signing key take over, and publish another one for the time after. Nothing has to be restarted, and nobody
notices: what the retiring key signed stays valid until its own end. What carries its signature and a later date is refused.

The change happens two minutes from now or later, as no key signs before it has been published for ten minutes.`
	c.Example = "toll keys rotate-signing --local --data ./toll-data"
	c.Flags().BoolVar(&local, "local", false, "work on the database of this machine")
	c.Flags().BoolVar(&statements, "statements", false, "change the key of signed offers and receipts instead")
	return c
}

func (a *app) keysSetPrefix() *cobra.Command {
	var local bool
	c := a.storeCommand(
		"set-prefix PREFIX",
		"Change the prefix of new API keys",
		func(cmd *cobra.Command, args []string, cfg server.Config) error {
			if !local {
				return usagef("the prefix is changed on the database itself: add --local")
			}
			if err := server.SetKeyPrefix(cmd.Context(), cfg, args[0]); err != nil {
				return err
			}
			a.say(
				"",
				"New API keys begin with %s: once the service has been restarted. Keys that exist stay valid.",
				args[0],
			)
			return nil
		},
	)
	c.Long = `Change the prefix of new API keys, which the first start of the service stored. Services use it from their next start on.

A prefix is not signed and carries no authority, so keys that exist stay valid. Deployed clients send a key with the prefix sandbox or live to
a fixed address of theirs; another prefix makes them use the address that they are configured with.`
	c.Example = "toll keys set-prefix local --local --data ./toll-data"
	c.Flags().BoolVar(&local, "local", false, "work on the database of this machine")
	return c
}

// seconds reads a flag with a time span. An empty one is 0.
func seconds(flag, value string) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	d, err := parseSeconds(value)
	if err != nil || d == 0 {
		return 0, usagef("--%s must be seconds, or a time such as 12h", flag)
	}
	return d, nil
}

// parseSeconds reads a time span: whole seconds, or a text such as 12h30m.
func parseSeconds(text string) (time.Duration, error) {
	if isDigits(text) {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err == nil && (d < 0 || d%time.Second != 0) {
		err = errors.New("not whole seconds")
	}
	return d, err
}
