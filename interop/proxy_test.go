package interop

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/tolltest"
)

// proxies are the programs of docs/guides/gate-proxy.md, with changes of their configurations for a test: another port, and no public certificate.
var proxies = map[string]struct {
	run    []string // in a directory with the file conf
	around string   // %s is the configuration of the page
	change []string // in it; LISTEN, CERT, and KEY are replaced
}{
	"caddy": {
		[]string{"caddy", "run", "--adapter", "caddyfile", "--config", "conf"}, "{\n\tadmin off\n\tauto_https disable_redirects\n}\n%s",
		[]string{"models.example.com {", "https://models.example.com:PORT {\n\ttls CERT KEY"},
	},
	"nginx": {
		[]string{"nginx", "-p", ".", "-c", "conf"},
		"daemon off;\nerror_log error.log;\npid pid;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path a;\nproxy_temp_path b;\n" +
			"fastcgi_temp_path c;\nuwsgi_temp_path d;\nscgi_temp_path e;\n%s}\n",
		[]string{"listen 443 ssl;", "listen PORT ssl;", "/etc/ssl/toll/fullchain.pem", "CERT", "/etc/ssl/toll/privkey.pem", "KEY"},
	},
}

// TestGuide_Proxy runs toll gate behind the proxies of docs/guides/gate-proxy.md, in make test-all. A stream arrives while the server
// still writes it, a large request passes, and a 402 has the public address.
func TestGuide_Proxy(t *testing.T) {
	if rounds.Deferred(t) {
		return
	}
	config := map[string]string{}
	var check, want string
	for _, b := range blocks(t, filepath.Join("..", "docs", "guides", "gate-proxy.md")) {
		switch b.language {
		case "sh":
			check = b.text
		case "text":
			want = b.text
		default:
			config[b.language] = b.text
		}
	}
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("%s is missing: SKIPPED", name)
			}
			goOn := make(chan struct{})
			upstream := &forwarded{next: vllm{func(w http.ResponseWriter) {
				select {
				case <-goOn:
				case <-time.After(30 * time.Second):
					fmt.Fprint(w, "data: {\"late\":true}\n\n")
				}
			}}}
			svc := tolltest.New(t, tolltest.WithPlan(client.PlanParams{
				Metadata: toll.Metadata{Name: "Models"}, Price: toll.Price{Amounts: []toll.Units{toll.UnitsOf(5_000_000)}, Currency: toll.CurrencyUSD},
				Credits: toll.CreditsDynamic(1_000_000, 1, 100_000),
			}))
			gate := startModelGate(t, svc, strings.ReplaceAll(config["yaml"], "http://127.0.0.1:8000", serve(t, upstream)))
			address := startProxy(t, name, p.run, fmt.Sprintf(p.around, strings.NewReplacer(p.change...).Replace(
				strings.ReplaceAll(config[name], "127.0.0.1:8403", strings.TrimPrefix(gate, "http://")))))

			web := &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "tcp", address)
				},
			}}
			const credits = 1_000_000
			ann := svc.Subscriber(credits)
			ask := func(question string) *http.Response {
				t.Helper()
				body := `{"model":"qwen3-8b","stream":true,"messages":[{"role":"user","content":"` + question + `"}]}`
				r := must.Get(http.NewRequest("POST", "https://models.example.com/v1/chat/completions", strings.NewReader(body)))(t)
				r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + ann.AccessToken}, "X-Forwarded-Host": {"evil.example"}}
				return must.Get(web.Do(r))(t)
			}
			res := ask("What is the capital of France?")
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			for lines.Scan() && !strings.Contains(lines.Text(), `"The "`) {
			}
			close(goOn)
			var rest strings.Builder
			for lines.Scan() {
				rest.WriteString(lines.Text())
			}
			if err := lines.Err(); err != nil || !strings.HasSuffix(rest.String(), "data: [DONE]") || strings.Contains(rest.String(), "late") {
				t.Errorf("%v, %s", err, rest.String())
			}
			if got := upstream.host + " " + upstream.proto; got != "models.example.com https" {
				t.Errorf("the server got %s", got)
			}
			large := ask(strings.Repeat("toll ", 1<<19))
			defer large.Body.Close()
			if text := must.Get(io.ReadAll(large.Body))(t); large.StatusCode != http.StatusOK || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
				t.Errorf("a large request: %d %.300s", large.StatusCode, text)
			}
			const cost = 2 * 8 // 15*0.15 + 8*0.6 = 7.05 each
			for end := time.Now().Add(10 * time.Second); ann.Balance() != credits-cost && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond)
			}
			if b := ann.Balance(); b != credits-cost {
				t.Errorf("%d credits remain", b)
			}

			home := t.TempDir()
			curl := fmt.Sprintf("insecure\nconnect-to = \"models.example.com:443:%s\"\n", address)
			must.Do(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte(curl), 0o600))
			sh := exec.CommandContext(t.Context(), "sh", "-e", "-c", check)
			sh.Env = append(os.Environ(), "HOME="+home)
			if out := must.Get(sh.Output())(t); string(out) != want {
				t.Errorf("the page says %q, and the command printed %q", want, out)
			}
		})
	}
}

// forwarded records where a request came from.
type forwarded struct {
	next        http.Handler
	host, proto string
}

func (f *forwarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.host, f.proto = r.Header.Get("X-Forwarded-Host"), r.Header.Get("X-Forwarded-Proto")
	f.next.ServeHTTP(w, r)
}

// startProxy runs a proxy with a configuration until the test ends.
func startProxy(t *testing.T, name string, run []string, config string) (address string) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "toll-proxy-"))(t) // workers of another user write into it
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must.Do(t, os.Chmod(dir, 0o777))
	address = servertest.FreeAddress(t)
	port := address
	if name == "caddy" {
		_, port, _ = net.SplitHostPort(address)
	}
	cert := httptest.NewTLSServer(nil)
	cert.Close()
	pair := cert.TLS.Certificates[0]
	secret := must.Get(x509.MarshalPKCS8PrivateKey(pair.PrivateKey))(t)
	config = strings.NewReplacer("PORT", port, "CERT", dir+"/cert.pem", "KEY", dir+"/key.pem").Replace(config)
	for file, text := range map[string][]byte{
		"conf": []byte(config), "cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	environment := append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	background(t, dir, environment, "\n# listen "+address+"\nexec "+strings.Join(run, " "))
	return address
}
