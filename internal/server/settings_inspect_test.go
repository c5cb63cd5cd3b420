package server_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// toll doctor signs in at the mail server and sends no mail.
func TestInspectMail(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t)}
	start(t, cfg)
	says(t, inspected(t, cfg, "mail"), "ok", "off")
	post := newPostOffice(t)
	post.auth = "canary"
	named := "smtp://pay@" + strings.TrimPrefix(post.url, "smtp://")
	of := func(url, password string) string {
		cfg := cfg
		cfg.Mail = people.MailConfig{URL: url, Password: password, From: "pay@example.com"}
		text := inspected(t, cfg, "mail")
		if strings.Contains(text, "canary") || strings.Contains(text, "\x1b") || len(text) > 600 {
			t.Errorf("%q", text)
		}
		return text
	}
	says(t, of(named, "canary"), "ok", post.url[len("smtp://"):])
	says(t, of(named, "other"), "failed", "535", "TOLL_SMTP_PASSWORD")
	says(t, of("smtp://127.0.0.1:1", ""), "failed", "refused", "TOLL_SMTP_URL")
	says(t, of("http://127.0.0.1:1", ""), "failed", "TOLL_SMTP_URL")
	if post.count() != 0 {
		t.Errorf("%d mails were sent", post.count())
	}
}

// Servers that accept connections and never answer, or not to the end, cost one deadline together, for toll doctor and for the page of
// the operators. The other checks have their time.
func TestInspect_Silence(t *testing.T) {
	mute := listenAnywhere(t)
	slow := listenAnywhere(t) // a mail server that answers after 6 s, and then no more
	t.Cleanup(func() { _, _ = mute.Close(), slow.Close() })
	go func() {
		for {
			c, err := slow.Accept()
			if err != nil {
				return
			}
			time.AfterFunc(6*time.Second, func() { _, _ = c.Write([]byte("220 slow\r\n")) })
		}
	}()
	silent := "http://" + mute.Addr().String()
	var cfg server.Config
	o := newTown(t, storetest.SQLite, func(c *server.Config) {
		c.Mail = people.MailConfig{URL: "smtp://" + slow.Addr().String(), From: "pay@example.com"}
		c.OIDC = people.OIDCConfig{Issuer: silent, ClientID: "toll", Name: "Silence"}
		c.ObjectStore = backup.ObjectStore{Endpoint: silent, AccessKey: "k", SecretKey: "s"}
		c.Backups = backup.Schedule{Dir: "s3://backups", Every: 24 * time.Hour, Keep: 7}
		cfg = *c
	})
	link := must.Get(o.s.FirstLink(t.Context()))(t)
	operator := o.signUp("operator", link[strings.LastIndex(link, "=")+1:])
	const bound = 20 * time.Second // the deadline of 8 s, and time of a busy machine; one after the other, the checks took 40 s
	began := time.Now()
	reads(t, operator.get("/w/"+operator.workspace()+"/operator"), http.StatusOK, "Health", "mail")
	if took := time.Since(began); took > bound {
		t.Errorf("the page took %s", took)
	}
	cfg.Rails.Card.SecretKey, cfg.Rails.Card.URL = "sk_test_silence0123456789", silent
	cfg.OIDC = people.OIDCConfig{Issuer: newIDProvider(t).url, ClientID: providerClient, ClientSecret: providerSecret}
	began = time.Now()
	checks, _ := server.Inspect(t.Context(), cfg)
	if took := time.Since(began); took > bound {
		t.Errorf("the inspection took %s", took)
	}
	for name, want := range map[string]string{
		"mail": check.Failed, "cards": check.Failed, "backups": check.Failed, "sign-in provider": check.OK,
	} {
		if !slices.ContainsFunc(checks, func(c check.Check) bool { return c.Name == name && c.Status == want }) {
			t.Errorf("%s is not %s: %+v", name, want, checks)
		}
	}
}

// toll doctor reads the discovery document of the sign-in provider, whose issuer must be the configured one.
func TestInspectOIDC(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t)}
	start(t, cfg)
	of := func(c people.OIDCConfig) string {
		cfg := cfg
		cfg.OIDC = c
		return inspected(t, cfg, "sign-in provider")
	}
	says(t, of(people.OIDCConfig{}), "ok", "off")
	p := newIDProvider(t)
	says(t, of(people.OIDCConfig{Issuer: p.url, ClientID: providerClient, ClientSecret: providerSecret}), "ok", p.url)
	says(t, of(people.OIDCConfig{Issuer: p.url, ClientID: providerClient}), "warning", "TOLL_OIDC_CLIENT_SECRET")
	says(t, of(people.OIDCConfig{Issuer: p.url}), "failed", "TOLL_OIDC_CLIENT_ID")
	says(t, of(people.OIDCConfig{Issuer: "http://127.0.0.1:1", ClientID: providerClient}), "failed", "refused", "TOLL_OIDC_ISSUER")
	says(t, of(people.OIDCConfig{Issuer: p.url + "/", ClientID: providerClient}), "failed", "did not match", "TOLL_OIDC_ISSUER")
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("x", 1<<20), http.StatusBadGateway)
	}))
	t.Cleanup(long.Close)
	if text := of(people.OIDCConfig{Issuer: long.URL, ClientID: providerClient}); len(text) > 600 || !strings.Contains(text, "502") {
		t.Errorf("%d bytes: %.700s", len(text), text)
	}
}

// A service with https is behind a proxy, whose address it must know. No prefix may be every address.
func TestInspectProxies(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t), PublicURL: "https://pay.example.com"}
	start(t, cfg)
	of := func(cfg server.Config, trusted string) string {
		cfg.TrustedProxies = trusted
		return inspected(t, cfg, "proxies")
	}
	says(t, of(cfg, ""), "warning", "https://pay.example.com", "TOLL_TRUSTED_PROXIES")
	says(t, of(cfg, "127.0.0.1, 10.0.0.0/8"), "ok", "10.0.0.0/8")
	says(t, of(cfg, "127.0.0.1,0.0.0.0/0"), "warning", "every address")
	says(t, of(cfg, "::/0"), "warning", "every address")
	says(t, of(cfg, "proxy.example.com"), "failed", "TOLL_TRUSTED_PROXIES")
	local := server.Config{Data: storetest.Dir(t)}
	start(t, local)
	says(t, of(local, ""), "ok", "no proxy is trusted")
	if _, address := server.Inspect(t.Context(), cfg); address != "https://pay.example.com" {
		t.Errorf("the service is looked for at %s", address)
	}
	cfg.Listen = "0.0.0.0:8411"
	if _, address := server.Inspect(t.Context(), cfg); address != "http://localhost:8411" {
		t.Errorf("the service is looked for at %s", address)
	}
}

// toll doctor compares the age of the newest backup with the pause between two, of noted ones too, and writes nothing.
func TestInspectBackups(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			at := storetest.Config(t, v)
			ahead := time.Duration(0)
			cfg := server.Config{
				Data: at.Data, Database: at.Database, MasterKeyFile: freshMasterKey(t), Clock: func() time.Time { return time.Now().Add(ahead) },
				Backups: backup.Schedule{Every: 24 * time.Hour, Keep: 7},
			}
			start(t, cfg)
			says(t, inspected(t, cfg, "backups"), "ok", "sandbox")
			must.Do(t, admin.NoteBackup(t.Context(), cfg))
			says(t, inspected(t, cfg, "backups"), "ok", "the newest backup is")
			ahead = 27 * time.Hour
			says(t, inspected(t, cfg, "backups"), "warning", "27h0m", "TOLL_BACKUP_EVERY", "24h")
			ahead = 0
			cfg.Backups.Dir = filepath.Join(t.TempDir(), "kept")
			if v == storetest.Postgres {
				says(t, inspected(t, cfg, "backups"), "failed", "TOLL_BACKUP_DIR")
				return
			}
			says(t, inspected(t, cfg, "backups"), "failed", "kept: no such file")
			must.Do(t, os.Mkdir(cfg.Backups.Dir, 0o700))
			says(t, inspected(t, cfg, "backups"), "warning", "has no backup yet")
			name := time.Now().UTC().Add(-27 * time.Hour).Format("toll-20060102T150405Z.backup")
			must.Do(t, os.WriteFile(filepath.Join(cfg.Backups.Dir, name), []byte("x"), 0o600))
			says(t, inspected(t, cfg, "backups"), "warning", "27h0m")
			cfg.Backups.Every = 48 * time.Hour
			says(t, inspected(t, cfg, "backups"), "ok", "27h0m")
			cfg.Backups.Every = time.Minute
			says(t, inspected(t, cfg, "backups"), "failed", "TOLL_BACKUP_EVERY")
			cfg.Backups.Every, cfg.Backups.Dir = 24*time.Hour, "s3://vault/toll"
			says(t, inspected(t, cfg, "backups"), "failed", "TOLL_S3_KEY_FILE")
			cfg.ObjectStore = backup.ObjectStore{Endpoint: "http://127.0.0.1:1", AccessKey: "a", SecretKey: "canary"}
			if text := inspected(t, cfg, "backups"); !strings.HasPrefix(text, "failed") || strings.Contains(text, "canary") {
				t.Errorf("a store that does not answer: %s", text)
			}
		})
	}
}

// On live a database without a known backup is a warning.
func TestInspectBackups_Live(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			at := storetest.Config(t, v)
			cfg := server.Config{Data: at.Data, Database: at.Database, MasterKeyFile: freshMasterKey(t), Environment: "live", PublicURL: "https://pay.example.com"}
			start(t, cfg)
			advice := map[storetest.Variant]string{storetest.SQLite: "TOLL_BACKUP_DIR", storetest.Postgres: "toll backup --record"}[v]
			says(t, inspected(t, cfg, "backups"), "warning", advice)
		})
	}
}
