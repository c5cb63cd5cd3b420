package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/server"
)

func keysCommand(a *app) *cobra.Command {
	return group("keys", "API keys", "",
		keysCreate(a),
		a.resource(call{use: "list", short: "List your API keys", list: list.Keys}),
		a.get("get ID", "Show an API key", "/api-keys/ID"),
		a.resource(call{
			use: "calls ID", short: "Show the last 200 calls of a key", path: "/api-keys/ID/calls",
			long: `Show the last 200 calls of an API key, but verify and settle, with their status, code and time. The service keeps
them in memory: a restart forgets them, and of several processes each one knows those that it answered.`,
			show: func(_ *cobra.Command, got json.RawMessage) error {
				return a.showPage(got, list.RecentCalls)
			},
		}),
		a.resource(call{
			use: "update ID", short: "Change the name or the API version of a key",
			method: http.MethodPatch, path: "/api-keys/ID",
			flags: []flag{
				{"name", "name", cleared(word), "new name"},
				{"api-version", "version", word, "new pinned API version"},
			},
		}),
		a.person(call{
			use: "rotate ID", short: "Make a key in the place of another one",
			long: `Make an API key in the place of another one, with the same name, rights and end. It is shown this once. The old one works until the
overlap is over, and what it made moves to the new one.

The caller is a person (see toll session), or a key that is not the old one and did not come of it: whoever stole a key cannot
make it outlive its end.`,
			example: "toll keys rotate ci --overlap 24h",
			method:  http.MethodPost, path: "/api-keys/ID/rotate", made: "key",
			flags: []flag{{"overlap", "overlapSecs", span, "how long the old key works beside the new one; default 24h"}},
		}),
		keysRotate(&a.console), keysRotateMaster(&a.console),
		keysSetPrefix(&a.console),
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

func keysCreate(a *app) *cobra.Command {
	var cfg server.Config
	var local bool
	var key server.KeyRequest
	rights := kind{name: "list", read: func(_ *app, _ string, given []string) (any, error) {
		rights, err := toll.ParseRights(idList(given))
		if err != nil || len(rights) == 0 {
			return nil, usagef("--rights must be words of %s", strings.Join(strings.Fields(toll.AllRights().String()), ","))
		}
		return rights, nil
	}}
	end := kind{name: "time", read: readLast(func(s string) (time.Time, error) {
		end, err := time.Parse(time.RFC3339, s)
		if err != nil {
			err = fmt.Errorf("must be a time such as 2027-01-31T00:00:00Z; got %q", s)
		}
		return end, err
	})}
	c := a.resource(call{
		use: "create", short: "Create an API key",
		long: `Create an API key. It is shown this once.

With --local the key is made on the database itself, beside the service or while it is stopped; the account is made on its
first use. --init makes a database that does not exist, before the first start of the service. An older one is not
migrated.

The rights are read, sell, spend, manage, money, keys, members and export. A key that another key makes has at most the rights of that
one, never members or export, ends no later, and ends with it.`,
		example: "toll keys create --name ci --rights read,sell\ntoll keys create --local --data ./toll-data --account alice -o json",
		method:  http.MethodPost, path: "/api-keys", made: "key",
		flags: []flag{
			{"name", "name", word, "name of the key"},
			{"expires-in", "expiresInSecs", span, "life: seconds, or 12h, 30m; default without end"},
			{"rights", "rights", rights, "rights of the key, with commas between; default all that can be given"},
			{"ends", "ends", end, "end of the key, such as 2027-01-31T00:00:00Z, in place of --expires-in"},
			{"api-version", "version", word, "pinned API version; default the current one"},
			{"prefix", "prefix", word, "prefix of the key, one that the service uses"},
		},
		change: func(cmd *cobra.Command, r *request) error {
			switch {
			case r.in["ends"] != nil && r.in["expiresInSecs"] != nil:
				return usagef("--ends stands beside --expires-in")
			case !local:
				return onlyLocal(cmd, "account", "operator", "init")
			case key.Account == "":
				return usagef("toll keys create --local needs --account")
			}
			return nil
		},
		local: func(ctx context.Context, r *request) (any, error) {
			if !local {
				return nil, nil
			}
			key.Name, key.Version, key.Prefix = value[string](r.in, "name"), value[string](r.in, "version"), value[string](r.in, "prefix")
			key.Rights, key.Ends = value[toll.Rights](r.in, "rights"), value[time.Time](r.in, "ends")
			key.ExpiresIn = time.Duration(value[int64](r.in, "expiresInSecs")) * time.Second
			cfg.Release = release()
			record, err := server.CreateLocalKey(ctx, cfg, key)
			if errors.Is(err, server.ErrNoDatabase) || errors.Is(err, server.ErrNoSchema) {
				err = fmt.Errorf("%w: start toll serve first, correct --data, or make one with --init", err)
			}
			return record, err
		},
	})
	f := c.Flags()
	f.BoolVar(&local, "local", false, "work on the database of this machine")
	f.StringVar(&key.Account, "account", "", "name of the account, or the address of one that exists, with --local")
	f.BoolVar(&key.Operator, "operator", false, "make the account an operator, who may move the clock of a sandbox, with --local")
	f.BoolVar(&key.Init, "init", false, "make the database when there is none, with --local")
	storeFlags(c, &cfg)
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

// localCommand works on the database itself, and has --local only so that nobody takes it for a change of something of theirs.
func localCommand(use, short, what string, run func(*cobra.Command, []string, server.Config) error) *cobra.Command {
	var local bool
	c := storeCommand(use, short, func(cmd *cobra.Command, args []string, cfg server.Config) error {
		if !local {
			return usagef("%s on the database itself: add --local", what)
		}
		return run(cmd, args, cfg)
	})
	c.Flags().BoolVar(&local, "local", false, "work on the database of this machine")
	return c
}

func keysRotate(con *console) *cobra.Command {
	var statements, compromised bool
	var kid string
	run := func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		switch {
		case kid != "" && !compromised:
			return usagef("--key names the key that --compromised ends")
		case compromised:
			ended, err := admin.EndSigningKey(cmd.Context(), cfg, statements, kid)
			if err != nil {
				return err
			}
			con.say("", "The key %s is ended: within 30 s every process refuses what it signed, access tokens too. %s have to be made again: "+
				"toll keys create --local.", ended.Ended, count(len(ended.APIKeys), "API key"))
			return con.show(ended)
		}
		rotation, err := admin.RotateKey(cmd.Context(), cfg, statements)
		if err != nil {
			return err
		}
		return con.show(rotation)
	}
	c := localCommand("rotate-signing", "Change the key that signs API keys and access tokens", "signing keys are rotated", run)
	c.Long = `Let the next signing key take over, and publish another one for the time after. Nothing has to be restarted, and nobody
notices: what the retiring key signed stays valid until its own end. What carries its signature and a later date is refused.

The change happens two minutes from now or later, as no key signs before it has been published for ten minutes.

With --compromised the key that signs, or the one of --key, is ended at once: all that it ever signed is refused, and the API keys that
fall are listed. Everybody needs a new API key and new access tokens; credits and permissions stay.`
	c.Example = "toll keys rotate-signing --local --data ./toll-data\ntoll keys rotate-signing --local --compromised --data ./toll-data -o json"
	c.Flags().BoolVar(&compromised, "compromised", false, "end the key at once, with all that it signed, because others may have it")
	c.Flags().StringVar(&kid, "key", "", "id of the key that --compromised ends, as the JWKS shows it; default the one that signs")
	c.Flags().BoolVar(&statements, "statements", false, "change the key of signed offers and receipts instead")
	return c
}

func keysRotateMaster(con *console) *cobra.Command {
	var file string
	run := func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		done, err := admin.RotateMaster(cmd.Context(), cfg, file)
		if err != nil {
			return err
		}
		con.say("", "All secrets are sealed with the key %s. Start every process with it alone, and keep the old key for the backups that it sealed.", done.To)
		return con.show(done)
	}
	c := localCommand("rotate-master", "Seal all secrets with another master key", "secrets are sealed anew", run)
	c.Flags().StringVar(&file, "new-key-file", "", "file with the new key: 64 hexadecimal digits, mode 0600")
	if err := c.MarkFlagRequired("new-key-file"); err != nil {
		panic(err) // the flag is there
	}
	c.Long = `Seal all secrets of a database with another master key. Every process that runs must have both keys before (--master-key-file and
--other-master-key-file), and seal with the new one: docs/OPERATING.md has the order. A process that has stopped needs no more than a
start with the new key.

The command works in small steps. If it is killed, the same command continues. A repeat when nothing is left changes nothing.`
	c.Example = "toll keys rotate-master --local --data ./toll-data --new-key-file new.key"
	return c
}

func keysSetPrefix(con *console) *cobra.Command {
	run := func(cmd *cobra.Command, args []string, cfg server.Config) error {
		if err := admin.SetKeyPrefix(cmd.Context(), cfg, args[0]); err != nil {
			return err
		}
		con.say("", "New API keys begin with %s: once the service has been restarted. Keys that exist stay valid.", args[0])
		return nil
	}
	c := localCommand("set-prefix PREFIX", "Change the prefix of new API keys", "the prefix is changed", run)
	c.Long = `Change the prefix of new API keys, which the first start of the service stored. Services use it from their next start on.

A prefix is not signed and carries no authority, so keys that exist stay valid. Deployed clients send a key with the prefix sandbox or live to
a fixed address of theirs; another prefix makes them use the address that they are configured with.`
	c.Example = "toll keys set-prefix local --local --data ./toll-data"
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
