package server_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// The master key is changed beside two instances, and stopped at every step: secrets of every kind can
// be used at each moment, and at the end the old key opens nothing that is stored.
// T19
func TestMasterKeyRotation(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) { rotatesMaster(t, storetest.Config(t, v)) })
	}
}

func rotatesMaster(t *testing.T, at store.Config) {
	ctx, old, next := t.Context(), freshMasterKey(t), freshMasterKey(t)
	cfg := server.Config{
		Data: at.Data, Database: at.Database, MasterKeyFile: old, PublicURL: "https://pay.example.com", LoopbackWebhooks: true,
	}
	var builder, subscriber toll.APIKey
	var c *stand
	var agent toll.AgentID
	t.Run("old", func(t *testing.T) {
		s, url := start(t, cfg)
		builder, subscriber = keys(t, s)
		c = newStand(t, url, builder, subscriber, 1000)
		if at.Database == "" {
			faucet(t, c.patient.subscriber, "1") // makes the accounts of the service
		}
		secret := client.AgentParams{
			Metadata: toll.Metadata{Name: "Upstream"}, API: toll.AgentAPI{AuthType: "bearer"},
			Credentials: toll.Credentials{Token: "secret of the agent"},
		}
		made := must.Get(c.patient.builder.RegisterAgent(client.WithIdempotencyKey(ctx, "agent"), secret))(t)
		agent = made.AgentID
		must.Get(c.patient.builder.CreateWebhook(ctx, client.WebhookParams{URL: "http://127.0.0.1:1/"}))(t)
	})
	uses := func(t *testing.T, url, id string) {
		t.Helper()
		if r, err := c.on(url, builder, subscriber).patient.settle(ctx, id); err != nil || !r.Success {
			t.Fatalf("%s: %v %+v", id, err, r)
		}
	}
	both, swapped := cfg, cfg
	both.OtherMasterKeyFile = next
	swapped.MasterKeyFile, swapped.OtherMasterKeyFile = next, old
	turn := "" // what the audit log says
	t.Run("both", func(t *testing.T) {
		_, url := start(t, both)
		uses(t, url, "before")
		second := url
		if at.Database != "" {
			_, second = start(t, swapped)
			uses(t, second, "swapped")
		}
		for _, column := range store.SealedColumns {
			stopped, stop := context.WithCancel(ctx)
			killed := cfg
			killed.StopAt(func(step string) {
				if step == "reseal "+column.Name {
					stop()
				}
			})
			if _, err := admin.RotateMaster(stopped, killed, next); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			stop()
			uses(t, url, "killed-"+column.Name)
			uses(t, second, "killed-too-"+column.Name)
		}
		done, err := admin.RotateMaster(ctx, cfg, next)
		if err != nil || done.From == done.To {
			t.Fatalf("%+v, %v", done, err)
		}
		turn = fmt.Sprintf(`%[1]s {"before":"%[2]s","after":"%[1]s"}`, done.To, done.From)
		uses(t, url, "done")
		if at.Database == "" {
			return
		}
		// What a process sealed with the old key meanwhile is found by a repeat.
		if again, err := admin.RotateMaster(ctx, cfg, next); err != nil {
			t.Errorf("%+v, %v", again, err)
		}
	})
	if done, err := admin.RotateMaster(ctx, cfg, next); err != nil || len(done.Resealed) > 0 {
		t.Errorf("something was left: %+v, %v", done, err)
	}
	st := storetest.OpenConfig(t, store.Config{Data: at.Data, Database: at.Database, Admin: true, ReadOnly: true})
	if acts := storetest.Acts(t, st, "", "master_key.rotated"); len(acts) == 0 || slices.ContainsFunc(acts, func(a string) bool { return a != turn }) {
		t.Errorf("the audit log says %q, not %q", acts, turn)
	}
	ring := must.Get(seal.FromFile(old, false))(t)
	if left := envelopes(t, at, ring.KeyID()); len(left) > 0 {
		t.Errorf("the old key still seals %v", left)
	}
	alone := cfg
	alone.MasterKeyFile = next
	_, url := start(t, alone)
	uses(t, url, "new")
	if got, err := c.on(url, builder, subscriber).patient.builder.Agent(ctx, agent); err != nil || got.ID != agent {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := admin.UnmatchedPayments(ctx, cfg); err == nil || !strings.Contains(err.Error(), "master key") {
		t.Errorf("the old key still opens the database: %v", err)
	}
}

// envelopes returns the columns of a database that hold envelopes of a master key, whatever the tables.
func envelopes(t *testing.T, at store.Config, keyID string) (found []string) {
	t.Helper()
	st := must.Get(store.Open(t.Context(), store.Config{Data: at.Data, Database: at.Database, Admin: true, ReadOnly: true}))(t)
	defer func() { _ = st.Close() }()
	columns := `SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table' AND p.type = 'BLOB'`
	if at.Database != "" {
		columns = `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema() AND data_type = 'bytea'`
	}
	all := column2(t, st, columns)
	if len(all) < 20 {
		t.Fatalf("only %d columns hold bytes", len(all))
	}
	for _, c := range all {
		var n int64
		for _, version := range []string{"01", "02"} {
			start := must.Get(hex.DecodeString(version + keyID))(t)
			query := fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE SUBSTR(%s, 1, 9) = $1", c[0], c[1])
			var some int64
			must.Do(t, st.QueryRow(t.Context(), query, start).Scan(&some), query)
			n += some
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%d in %s.%s", n, c[0], c[1]))
		}
	}
	return found
}

// column2 reads two columns of text.
func column2(t *testing.T, st *store.Store, query string) [][2]string {
	t.Helper()
	return must.Get(store.All(t.Context(), st, func(scan func(dest ...any) error) (c [2]string, err error) {
		err = scan(&c[0], &c[1])
		return c, err
	}, query))(t)
}
