package server_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// answers keeps every body and header that a service sent, but for the calls that make a secret.
type answers struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	makes := r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/api-keys") || strings.HasSuffix(r.URL.Path, "/x402/permissions"))
	if !makes {
		a.mu.Lock()
		defer a.mu.Unlock()
		fmt.Fprintf(&a.b, "%s %s %v %s\n", r.Method, r.URL.Path, res.Header, body)
	}
	return res, nil
}

// T19 and I23: a whole run at debug level, and no secret in a log line, in an answer but the one that makes it, or in
// the database outside what is sealed or hashed.
// T19 I23
func TestNoSecretIsLeft(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		o.Args = []string{"--log-level", "debug"}
		builder := servertest.Key(t, o, "builder")
		p := servertest.Start(t, o)
		subscriber := servertest.Key(t, o, "subscriber")

		var seen answers
		transport := client.WithHTTPClient(&http.Client{Transport: &seen})
		c := newStand(t, p.URL, builder, subscriber, 20)
		c.builder = client.New(builder.Key, client.WithURL(p.URL), transport)
		c.subscriber = client.New(subscriber.Key, client.WithURL(p.URL), transport)
		nested := must.Get(c.subscriber.AccessToken(t.Context(), c.plan, client.WithTokenFormat("x402")))(t)
		further := must.Get(c.builder.CreateKey(t.Context(), client.KeyParams{Name: "further"}))(t)
		useEverything(t, p.URL, c, nested, further, &seen)

		must.Do(t, p.Signal(syscall.SIGTERM))
		if code, err := p.Wait(patience); err != nil || code != 0 {
			t.Fatalf("exit %d, %v", code, err)
		}

		canaries := map[string][]string{}
		for name, key := range map[string]string{"API key": builder.Key, "subscriber's API key": subscriber.Key, "further API key": further.Key} {
			_, jwt, long := strings.Cut(key, ":")
			if !long {
				canaries[name] = []string{key, strings.TrimPrefix(key, "tk_sandbox_")[:26]} // the last six characters are the tail
				continue
			}
			canaries[name] = []string{jwt, signatureOf(jwt)}
		}
		inner := must.Get(x402.DecodeToken(nested.AccessToken))(t)
		canaries["access token"] = []string{c.token.AccessToken, signatureOf(c.token.AccessToken)}
		canaries["nested access token"] = []string{nested.AccessToken, inner.JWS, signatureOf(inner.JWS)}
		for name, secret := range sealedSecrets(t, o) {
			canaries[name] = renderings(secret)
		}

		places := map[string][]byte{"the log": []byte(p.Log.String()), "an answer": seen.b.Bytes()}
		if o.Data != "" {
			files := must.Get(os.ReadDir(o.Data))(t)
			for _, f := range files {
				if f.Name() == "master.key" {
					continue
				}
				places[f.Name()] = must.Get(os.ReadFile(filepath.Join(o.Data, f.Name())))(t)
			}
			if !bytes.Contains(places["toll.db"], []byte(builder.Tail)) {
				t.Error("the database file does not even hold the tail of a key: the search looks at the wrong place")
			}
		} else {
			places["the database"] = dump(t, o.Database)
		}
		if !strings.Contains(p.Log.String(), `"msg":"serving"`) || seen.b.Len() == 0 {
			t.Error("the log or the answers are empty: the search looks at the wrong place")
		}
		for name, texts := range canaries {
			for _, text := range texts {
				for place, content := range places {
					if len(text) < 16 {
						t.Fatalf("canary %s is too short to look for", name)
					}
					if bytes.Contains(content, []byte(text)) {
						t.Errorf("%s holds the %s", place, name)
					}
				}
			}
		}
	})
}

func signatureOf(jws string) string { return jws[strings.LastIndexByte(jws, '.')+1:] }

// renderings are the texts as which bytes may be written.
func renderings(secret []byte) []string {
	return []string{
		string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)),
		base64.StdEncoding.EncodeToString(secret)[:40], base64.RawURLEncoding.EncodeToString(secret)[:40],
	}
}

// sealedSecrets opens what is sealed in the database, as only the master key can.
func sealedSecrets(t *testing.T, o servertest.Options) map[string][]byte {
	t.Helper()
	path := o.MasterKeyFile
	if path == "" {
		path = filepath.Join(o.Data, "master.key")
	}
	ring := must.Get(seal.FromFile(path, false))(t)
	text := must.Get(os.ReadFile(path))(t)
	master := must.Get(hex.DecodeString(strings.TrimSpace(string(text))))(t)
	secrets := map[string][]byte{"master key": master}
	st := must.Get(store.Open(t.Context(), store.Config{Data: o.Data, Database: o.Database, Admin: true}))(t)
	defer st.Close()
	find := func(name, query, use string) {
		rows := must.Get(st.Query(t.Context(), query))(t)
		defer rows.Close()
		n := 0
		for ; rows.Next(); n++ {
			var id string
			var sealed []byte
			must.Do(t, rows.Scan(&id, &sealed))
			plain, err := ring.Open(sealed, []byte("toll/"+use+"/sandbox/"+strings.ToLower(id)))
			if err != nil {
				if plain, err = ring.Open(sealed, []byte("toll/"+use+"/sandbox/"+id)); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if len(plain) == ed25519.PrivateKeySize {
				plain = plain[:ed25519.SeedSize]
			}
			secrets[fmt.Sprintf("%s %d", name, n)] = plain
		}
		if n == 0 {
			t.Fatalf("no %s is there to look for", name)
		}
	}
	find("wallet key", "SELECT address, sealed_key FROM principals", "wallet")
	find("signing key", "SELECT kid, sealed FROM signing_keys WHERE purpose IS NULL", "signing-key")
	find("statement key", "SELECT kid, sealed FROM signing_keys WHERE purpose = 'statement'", "statement-key")
	find("MAC key", "SELECT '', value FROM settings WHERE name = 'mac_key'", "mac-key")
	return secrets
}

// useEverything calls what may succeed and what must fail, with secrets in the right and in wrong places.
func useEverything(t *testing.T, url string, c *stand, nested *toll.AccessToken, further *toll.APIKey, seen *answers) {
	t.Helper()
	ctx := t.Context()
	for i, token := range []string{c.token.AccessToken, nested.AccessToken} {
		v, err := c.builder.Verify(ctx, &x402.VerifyRequest{PaymentRequired: c.required(), AccessToken: token, Hold: true})
		if err != nil || !v.IsValid {
			t.Fatalf("verify %d: %+v %v", i, v, err)
		}
		s, err := c.builder.Settle(ctx, &x402.SettleRequest{PaymentRequired: c.required(), AccessToken: token, AgentRequestID: v.AgentRequestID})
		if i == 0 && (err != nil || !s.Success) {
			t.Fatalf("settle %d: %+v %v", i, s, err)
		}
		damaged := token[:len(token)-8] + "AAAAAAAA"
		_, _ = c.builder.Verify(ctx, &x402.VerifyRequest{PaymentRequired: c.required(), AccessToken: damaged})
		_, _ = c.builder.Settle(ctx, &x402.SettleRequest{PaymentRequired: c.required(), AccessToken: damaged})
		_, _ = c.subscriber.Settle(ctx, &x402.SettleRequest{PaymentRequired: c.required(), AccessToken: token})
	}
	for _, list := range []string{"/api-keys", "/x402/permissions", "/x402/permissions/" + c.token.PermissionHash.String(), "/api-keys/" + further.ID.String(), "/protocol/plans", "/meta/versions"} {
		for _, who := range []*client.Client{c.builder, c.subscriber} {
			_ = who.Call(ctx, http.MethodGet, "/api/v1"+list, nil, nil, nil)
		}
	}
	raw := &http.Client{Transport: seen}
	for _, secret := range []string{c.token.AccessToken, nested.AccessToken, further.Key} {
		for _, line := range []string{"Bearer " + secret, "Basic " + secret, secret, "Bearer " + secret + "x"} {
			for _, body := range []string{"", `{"x402AccessToken":"` + secret + `"}`, `{"` + secret} {
				req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1/x402/settle", strings.NewReader(body)))(t)
				req.Header.Set("Authorization", line)
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("payment-signature", secret)
				res := must.Get(raw.Do(req))(t)
				_ = res.Body.Close()
			}
		}
	}
	must.Get(c.builder.RevokeKey(ctx, further.ID))(t)
	if _, err := client.New(further.Key, client.WithURL(url), client.WithHTTPClient(raw)).Versions(ctx); err == nil {
		t.Error("a revoked key is good")
	}
	must.Do(t, c.subscriber.RevokePermission(ctx, nested.PermissionHash))
	_, _ = c.builder.Settle(ctx, &x402.SettleRequest{PaymentRequired: c.required(), AccessToken: nested.AccessToken})
}

// storedBytes are the digits by which PostgreSQL shows bytes.
var storedBytes = regexp.MustCompile(`\\\\x[0-9a-f]*`)

// dump returns every row of every table as text, with bytes as they are.
func dump(t *testing.T, dsn string) []byte {
	t.Helper()
	cfg := must.Get(pgx.ParseConfig(dsn))(t)
	delete(cfg.RuntimeParams, "pool_max_conns")
	ctx := context.Background()
	conn := must.Get(pgx.ConnectConfig(ctx, cfg))(t)
	defer conn.Close(ctx)
	tables := column(t, conn, "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")
	var b bytes.Buffer
	for _, table := range tables {
		for _, row := range column(t, conn, "SELECT r::text FROM "+table+" r") {
			b.Write(storedBytes.ReplaceAllFunc([]byte(row+"\n"), func(text []byte) []byte {
				raw, err := hex.DecodeString(string(text[bytes.IndexByte(text, 'x')+1:]))
				if err != nil {
					return text // of a text
				}
				return raw
			}))
		}
	}
	if len(tables) < 10 || b.Len() == 0 {
		t.Fatal("the dump is empty")
	}
	return b.Bytes()
}

func column(t *testing.T, conn *pgx.Conn, query string) []string {
	t.Helper()
	rows := must.Get(conn.Query(context.Background(), query))(t)
	return must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}
