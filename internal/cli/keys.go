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
			use: "calls ID", short: "Show the last 200 calls made with an API key", path: "/api-keys/ID/calls",
			long: `Show the last 200 calls made with an API key, except verify and settle, with their status, code, and time. The service keeps
them in memory: a restart clears them, and each process shows only the calls that it answered.`,
			show: func(_ *cobra.Command, got json.RawMessage) error {
				return a.showPage(got, list.RecentCalls)
			},
		}),
		a.resource(call{
			use: "update ID", short: "Change the name or the API version of an API key",
			method: http.MethodPatch, path: "/api-keys/ID",
			flags: []flag{
				{"name", "name", cleared(word), "new name"},
				{"api-version", "version", word, "new pinned API version"},
			},
		}),
		a.person(call{
			use: "rotate ID", short: "Replace an API key",
			long: `Replace an API key with a new key that has the same name, rights, and expiry. The new key is shown only once. The old key works until
the overlap ends. API keys, access tokens, and connected apps that were created with the old key move to the new key.

A stolen key cannot extend its own life: run this command as a person (see toll session), or with another key that was not created
with the old key.`,
			example: "toll keys rotate ci --overlap 24h",
			method:  http.MethodPost, path: "/api-keys/ID/rotate", made: "key",
			flags: []flag{{"overlap", "overlapSecs", span, "how long the old key still works; default 24h"}},
		}),
		keysRotate(&a.console), keysRotateMaster(&a.console),
		keysSetPrefix(&a.console),
		a.resource(call{
			use: "revoke ID", short: "Revoke an API key and everything created with it",
			long: `Revoke an API key at once, with the API keys, access tokens, and connected apps that were created with it. Open holds still settle.
The response counts the revoked records.

With --keep, these records stay valid and then belong to your own key. Your key must have all of their rights and must not expire before
them.`,
			method: http.MethodDelete, path: "/api-keys/ID",
			flags: []flag{{"keep", "keep", toggle, "keep API keys, access tokens, and connected apps that were created with the key"}},
		}),
	)
}

func keysCreate(a *app) *cobra.Command {
	var cfg server.Config
	var local, short, long bool
	var key server.KeyRequest
	rights := kind{name: "list", read: func(_ *app, _ string, given []string) (any, error) {
		rights, err := toll.ParseRights(idList(given))
		if err != nil || len(rights) == 0 {
			return nil, usagef("--rights must be a list of these rights: %s", strings.Join(strings.Fields(toll.AllRights().String()), ","))
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
		long: `Create an API key. The key is shown only once.

A short key has about 45 characters, such as tk_sandbox_…. A long key is a JWT behind a prefix, which some deployed clients decode. Keys of
a service with a namespace or key prefix of its own, and keys from --local, are long unless you pass --short. Other keys are short unless
you pass --long or --prefix.

With --local, the key is created directly in the database, whether the service runs or not. The command creates the workspace if it does
not exist. With --init, the command also creates the database if it does not exist, so that you can run it before the first start of the
service. It does not migrate a database with an older schema.

The rights are read, sell, spend, manage, money, keys, members, and export. A key that you create with another key has at most the rights
of that key, but never members or export. It expires no later than that key, and is revoked with it.`,
		example: "toll keys create --name ci --rights read,sell\ntoll keys create --local --data ./toll-data --account alice -o json",
		method:  http.MethodPost, path: "/api-keys", made: "key",
		flags: []flag{
			{"name", "name", word, "name of the key"},
			{"expires-in", "expiresInSecs", span, "lifetime in seconds, or a duration such as 12h; default no expiry"},
			{"rights", "rights", rights, "rights of the key, separated by commas; default all rights that you can grant"},
			{"ends", "ends", end, "expiry time, such as 2027-01-31T00:00:00Z, instead of --expires-in"},
			{"api-version", "version", word, "pinned API version; default the current version"},
			{"prefix", "prefix", word, "prefix of a long key, which must be a prefix that the service uses"},
		},
		change: func(cmd *cobra.Command, r *request) error {
			if short {
				r.in["form"] = toll.KeyShort
			} else if long {
				r.in["form"] = toll.KeyLong
			}
			switch {
			case short && r.in["prefix"] != nil:
				return usagef("use --short or --prefix, not both: a short key has the prefix tk_sandbox_ or tk_live_")
			case r.in["ends"] != nil && r.in["expiresInSecs"] != nil:
				return usagef("use --ends or --expires-in, not both")
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
			key.Short = short
			key.ExpiresIn = time.Duration(value[int64](r.in, "expiresInSecs")) * time.Second
			cfg.Release = release()
			record, err := server.CreateLocalKey(ctx, cfg, key)
			if errors.Is(err, server.ErrNoDatabase) || errors.Is(err, server.ErrNoSchema) {
				err = fmt.Errorf("%w: start toll serve first, fix --data, or create a database with --init", err)
			}
			return record, err
		},
	})
	f := c.Flags()
	f.BoolVar(&short, "short", false, "create a short key")
	f.BoolVar(&long, "long", false, "create a long key, which contains the address of the workspace")
	c.MarkFlagsMutuallyExclusive("short", "long")
	f.BoolVar(&local, "local", false, "work directly on the database, without the service")
	f.StringVar(&key.Account, "account", "", "name of the workspace, or the address of an existing workspace; requires --local")
	f.BoolVar(&key.Operator, "operator", false, "make the workspace an operator, which can move the clock of a sandbox; requires --local")
	f.BoolVar(&key.Init, "init", false, "create the database if it does not exist; requires --local")
	storeFlags(c, &cfg)
	return c
}

// onlyLocal returns a usage error for flags that require --local: names, and the flags of the database.
func onlyLocal(cmd *cobra.Command, names ...string) error {
	for _, name := range append(names, "data", "database", "master-key-file", "environment", "key-prefix") {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return usagef("--%s requires --local", name)
		}
	}
	return nil
}

// localCommand works directly on the database. It requires --local so that users do not mistake it for a change of their own records.
func localCommand(use, short string, run func(*cobra.Command, []string, server.Config) error) *cobra.Command {
	var local bool
	c := storeCommand(use, short, func(cmd *cobra.Command, args []string, cfg server.Config) error {
		if !local {
			return usagef("%s works directly on the database: add --local", cmd.CommandPath())
		}
		return run(cmd, args, cfg)
	})
	c.Flags().BoolVar(&local, "local", false, "work directly on the database, without the service")
	return c
}

func keysRotate(con *console) *cobra.Command {
	var statements, compromised bool
	var kid string
	run := func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		switch {
		case kid != "" && !compromised:
			return usagef("--key requires --compromised")
		case compromised:
			ended, err := admin.EndSigningKey(cmd.Context(), cfg, statements, kid)
			if err != nil {
				return err
			}
			con.say("", "Signing key %s is revoked. Within 30 s, every process rejects everything that this key signed, including access tokens. "+
				"%s must be replaced: run toll keys create --local.", ended.Ended, count(len(ended.APIKeys), "API key"))
			return con.show(ended)
		}
		rotation, err := admin.RotateKey(cmd.Context(), cfg, statements)
		if err != nil {
			return err
		}
		return con.show(rotation)
	}
	c := localCommand("rotate-signing", "Rotate the key that signs API keys and access tokens", run)
	c.Long = `Switch to the next signing key, and publish a key for the following rotation. The rotation needs no restart and no downtime: API keys
and access tokens that the current key signs before the switch stay valid until they expire. The service rejects everything that this
key signs after the switch.

The switch happens at least two minutes from now, because a key must be published for ten minutes before it signs.

With --compromised, the command revokes the current signing key, or the key in --key, at once, and lists the API keys that are revoked
with it. The service rejects everything that the revoked key ever signed. Everyone needs a new API key and new access tokens; credits
and permissions stay.`
	c.Example = "toll keys rotate-signing --local --data ./toll-data\ntoll keys rotate-signing --local --compromised --data ./toll-data -o json"
	c.Flags().BoolVar(&compromised, "compromised", false, "revoke the key at once, with everything that it signed, because it may be stolen")
	c.Flags().StringVar(&kid, "key", "", "id of the key to revoke with --compromised, as in the JWKS; default the current signing key")
	c.Flags().BoolVar(&statements, "statements", false, "rotate or revoke the key that signs offers and receipts instead")
	return c
}

func keysRotateMaster(con *console) *cobra.Command {
	var file string
	run := func(cmd *cobra.Command, _ []string, cfg server.Config) error {
		done, err := admin.RotateMaster(cmd.Context(), cfg, file)
		if err != nil {
			return err
		}
		con.say("", "All secrets are encrypted with the key %s. Restart every process with this key only, and keep the old key for backups that it encrypted.", done.To)
		return con.show(done)
	}
	c := localCommand("rotate-master", "Re-encrypt all secrets with a new master key", run)
	c.Flags().StringVar(&file, "new-key-file", "", "file with the new key: 64 hexadecimal digits, mode 0600")
	if err := c.MarkFlagRequired("new-key-file"); err != nil {
		panic(err) // the flag is there
	}
	c.Long = `Re-encrypt all secrets of a database with a new master key. Before that, every running process must have both keys (--master-key-file
and --other-master-key-file) and encrypt with the new key: docs/OPERATING.md lists the steps.

The command works in small steps. If it is interrupted, run it again to continue. After it has finished, running it again changes nothing.`
	c.Example = "toll keys rotate-master --local --data ./toll-data --new-key-file new.key"
	return c
}

func keysSetPrefix(con *console) *cobra.Command {
	run := func(cmd *cobra.Command, args []string, cfg server.Config) error {
		if err := admin.SetKeyPrefix(cmd.Context(), cfg, args[0]); err != nil {
			return err
		}
		con.say("", "After a restart of the service, new long API keys start with \"%s:\". Existing keys stay valid.", args[0])
		return nil
	}
	c := localCommand("set-prefix PREFIX", "Change the prefix of new API keys", run)
	c.Long = `Change the prefix of new long API keys, which was stored at the first start of the service. The service uses the new prefix after its next start.

A prefix is not signed and carries no authority, so existing keys stay valid. Deployed clients send keys with the prefix sandbox or live
to a fixed address; with any other prefix, they use the address in their configuration.`
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
		return 0, usagef("--%s must be whole seconds or a duration such as 12h", flag)
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
