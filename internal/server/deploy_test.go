package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
)

// example returns the text of an example in deploy/.
func example(t *testing.T, path ...string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(append([]string{"..", "..", "deploy"}, path...)...)))(t)
	return string(text)
}

// needs reports whether a test runs that needs a Debian program: only in make test-all, because installing nginx or Caddy starts
// them. There it skips the test when the program is missing.
func needs(t *testing.T, program string) bool {
	t.Helper()
	if rounds.Deferred(t) {
		return false
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is missing: SKIPPED", program)
	}
	return true
}

// replaceAll replaces each old text, which must be there, by the new one after it.
func replaceAll(t *testing.T, text string, oldNew ...string) string {
	t.Helper()
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("the example does not have %q", oldNew[i])
		}
		text = strings.ReplaceAll(text, oldNew[i], oldNew[i+1])
	}
	return text
}

// writeFile writes a file into a directory and returns its path.
func writeFile(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Do(t, os.WriteFile(path, text, 0o644))
	return path
}

// nginxWith writes the configuration of an nginx of the test with a part for its http block.
func nginxWith(t *testing.T, part string) (dir, config string) {
	t.Helper()
	dir = must.Get(os.MkdirTemp("", "toll-nginx-"))(t) // workers of another user write into it
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must.Do(t, os.Chmod(dir, 0o755))
	text := fmt.Sprintf(`
daemon off;
error_log %[1]s/error.log;
pid %[1]s/nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
%[2]s
}
`, dir, part)
	return dir, writeFile(t, dir, "nginx.conf", []byte(text))
}

// certificate writes a certificate that nobody trusts, and its key.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "pay.example.com"},
		NotAfter:     time.Now().Add(time.Hour),
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private))(t)
	secret := must.Get(x509.MarshalECPrivateKey(private))(t)
	block := func(kind string, b []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})
	}
	return writeFile(t, dir, "cert.pem", block("CERTIFICATE", der)),
		writeFile(t, dir, "key.pem", block("EC PRIVATE KEY", secret))
}

// succeeds runs a program that checks an example.
func succeeds(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

func TestDeploy_Nginx(t *testing.T) {
	if !needs(t, "nginx") {
		return
	}
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	_, config := nginxWith(t, replaceAll(t, example(t, "nginx", "toll.conf"),
		"/etc/ssl/toll/fullchain.pem", cert, "/etc/ssl/toll/privkey.pem", key))
	succeeds(t, dir, "nginx", "-t", "-c", config)
}

func TestDeploy_Caddy(t *testing.T) {
	if !needs(t, "caddy") {
		return
	}
	dir := t.TempDir()
	for _, where := range []string{"caddy", "compose"} {
		text := strings.ReplaceAll(example(t, where, "Caddyfile"), "{$DOMAIN}", "pay.example.com")
		path := writeFile(t, dir, "Caddyfile", []byte(text))
		succeeds(t, dir, "caddy", "validate", "--adapter", "caddyfile", "--config", path)
	}
}

func TestDeploy_Systemd(t *testing.T) {
	if !needs(t, "systemd-analyze") {
		return
	}
	dir := t.TempDir()
	unit := replaceAll(t, example(t, "systemd", "toll@.service"), "/usr/bin/toll", servertest.Program(t))
	succeeds(t, dir, "systemd-analyze", "verify", "--man=no",
		writeFile(t, dir, "toll@8402.service", []byte(unit)))
}

// TestDeploy_Compose reads the compose file as an engine does.
func TestDeploy_Compose(t *testing.T) {
	if rounds.Deferred(t) {
		return
	}
	file := filepath.Join("deploy", "compose", "compose.yaml")
	env := filepath.Join("..", "..", "deploy", "compose", "toll.env")
	must.Do(t, os.WriteFile(env, []byte("TOLL_DATABASE=postgres://toll:x@postgres/toll\n"), 0o600))
	defer os.Remove(env)
	var project struct {
		Services map[string]struct {
			Image       string
			ReadOnly    bool     `json:"read_only"`
			CapDrop     []string `json:"cap_drop"`
			StopGrace   string   `json:"stop_grace_period"`
			Environment map[string]string
			HealthCheck struct{ Test []string }
		}
	}
	out := inRoot(t, []string{"DOMAIN=pay.example.com"}, "go", "run", "-C", "deploy/tool", ".", "compose", file)
	must.Do(t, json.Unmarshal([]byte(out), &project))
	for _, name := range []string{"toll-1", "toll-2"} {
		s := project.Services[name]
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.StopGrace != "30s" || len(s.HealthCheck.Test) == 0 ||
			s.Environment["TOLL_PUBLIC_URL"] != "https://pay.example.com" || s.Environment["TOLL_DATABASE"] == "" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	settings := project.Services["toll-1"].Environment
	settings["TOLL_LISTEN"] = "0.0.0.0:8402" // the image sets it
	startsWithSettings(t, settings, toll.Sandbox)
	cmd := exec.Command("go", "run", "-C", filepath.Join("..", "..", "deploy", "tool"), ".", "compose", file)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "set DOMAIN to the public host name of the service") {
		t.Errorf("without DOMAIN: %v %s", err, out)
	}
}

// startsWithSettings runs both forms of the program with the settings of an example on PostgreSQL. The service must become ready, and its
// log must name the setting or the file that crypto plans need.
func startsWithSettings(t *testing.T, settings map[string]string, env toll.Environment) {
	t.Helper()
	for _, f := range forms {
		t.Run(string(env)+" "+f.name, func(t *testing.T) {
			address, cmd := servertest.FreeAddress(t), exec.Command(f.release(t, "1.1.0"), "serve")
			for name, value := range settings {
				switch name {
				case "TOLL_LISTEN":
					value = address
				case "TOLL_METRICS_LISTEN":
					value = servertest.FreeAddress(t)
				case "TOLL_MASTER_KEY_FILE":
					value = freshMasterKey(t)
				case "TOLL_DATABASE":
					continue
				}
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			cmd.Env = append(cmd.Env, "TOLL_DATABASE="+storetest.Empty(t, storetest.Postgres).Database, "TOLL_ENVIRONMENT="+string(env))
			reason := f.reason()
			switch {
			case env == toll.Live:
				reason = "must set TOLL_CHAIN_RPC_URLS"
			case f.chain: // PostgreSQL has no data directory for it
				reason = "The embedded chain needs a data directory"
			}
			startsReady(t, cmd, address, reason)
		})
	}
}

// TestDeploy_Helm renders the chart, holds the result against the schemas of Kubernetes, and starts the program with the settings of its pods.
func TestDeploy_Helm(t *testing.T) {
	if rounds.Deferred(t) {
		return
	}
	const helm, validate = "helm.sh/helm/v3/cmd/helm@v3.22.0", "sigs.k8s.io/kubectl-validate@v0.0.4"
	chart := filepath.Join("deploy", "helm", "toll")
	all := []string{"--set", "publicUrl=https://pay.example.com,trustedProxies=10.0.0.0/8", "--set-string", "env.TOLL_RATE_LIMIT_IP=0",
		"--set", "ingress.enabled=true,ingress.host=pay.example.com,ingress.tlsSecret=tls,ingress.className=nginx",
		"--set-json", `extraEnv=[{"name":"TOLL_SMTP_PASSWORD","valueFrom":{"secretKeyRef":{"name":"mail","key":"password"}}}]`,
		"--set-json", `envFrom=[{"secretRef":{"name":"more"}}]`, "--set", "serviceAccount=payments",
		"--set-json", `extraVolumes=[{"name":"stripe","secret":{"secretName":"stripe"}}]`,
		"--set-json", `extraVolumeMounts=[{"name":"stripe","mountPath":"/run/secrets/stripe","readOnly":true}]`}
	inRoot(t, nil, "go", append([]string{"run", helm, "lint", "--strict", chart}, all...)...)
	least := []string{"--set", "publicUrl=https://pay.example.com,replicas=1,metrics.enabled=false,migrate=false"}
	for name, args := range map[string][]string{"all": append(all, "--is-upgrade"), "least": least} {
		out := inRoot(t, nil, "go", append([]string{"run", helm, "template", "pay", chart, "--kube-version", "1.29.0"}, args...)...)
		file := writeFile(t, t.TempDir(), name+".yaml", []byte(out))
		inRoot(t, nil, "go", "run", validate, "--version", "1.29", file)
		for _, want := range []string{
			"terminationGracePeriodSeconds: 30", "maxUnavailable: 0", "runAsNonRoot: true", "readOnlyRootFilesystem: true", "path: /ready",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
		// The service and its migration have the same settings.
		for _, want := range []string{"name: TOLL_SMTP_PASSWORD", "name: more", "serviceAccountName: \"payments\"", "mountPath: /run/secrets/stripe",
			"secretName: stripe", "name: TOLL_RATE_LIMIT_IP", "cpu: 500m"} {
			if n := strings.Count(out, want); name == "all" && n != 2 {
				t.Errorf("%s has %q %d times, want 2", name, want, n)
			}
		}
		if name == "all" {
			settings := map[string]string{}
			for _, m := range regexp.MustCompile(`\{name: (TOLL_\w+), value: "?([^"}]*)"?\}`).FindAllStringSubmatch(out, -1) {
				settings[m[1]] = m[2]
			}
			if len(settings) < 6 {
				t.Errorf("the settings of a pod are %v", settings)
			}
			startsWithSettings(t, settings, toll.Sandbox)
			startsWithSettings(t, settings, toll.Live)
		}
	}
	cmd := exec.Command("go", "run", helm, "template", "pay", chart, "--kube-version", "1.29.0")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "publicUrl") {
		t.Errorf("without an address: %v %s", err, out)
	}
}

// SIGTERM makes /ready answer 503 while requests are still accepted, and then the service ends.
// F22
func TestDrainBeforeShutdown(t *testing.T) {
	t.Parallel()
	o := servertest.Options{Data: t.TempDir(), Args: []string{"--drain", "2s"}}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	p := servertest.Start(t, o)
	c := newStand(t, p.URL, builder, subscriber, 1000)
	if !readyNow(t, p.URL) {
		t.Fatal("not ready")
	}
	began := time.Now()
	must.Do(t, p.Signal(syscall.SIGTERM))
	eventually(t, "not ready", func() bool { return status(t, p.URL+"/ready") == http.StatusServiceUnavailable })
	if r, err := c.settle(t.Context(), "while-it-drains"); err != nil || !r.Success {
		t.Errorf("a settlement after %v of the drain: %+v, %v", time.Since(began), r, err)
	}
	code, err := p.Wait(patience)
	if took := time.Since(began); err != nil || code != 0 || took < 2*time.Second {
		t.Errorf("exit %d after %v: %v\n%s", code, took, err, p.Log)
	}
}

// Two processes on one PostgreSQL behind the nginx of the example are restarted one after the other under load. Each
// request gets its answer at the first try.
// F22
func TestRollingRestartBehindNginx(t *testing.T) {
	if !needs(t, "nginx") {
		return
	}
	t.Parallel()
	cfg := storetest.Config(t, storetest.Postgres)
	o := servertest.Options{
		Database: cfg.Database, MasterKeyFile: freshMasterKey(t),
		Args: []string{"--drain", "2s", "--rate-limit-ip", "0"},
	}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	listen := []string{servertest.FreeAddress(t), servertest.FreeAddress(t)}
	processes := make([]*servertest.Process, 2)
	startAt := func(i int) {
		on := o
		on.Listen = listen[i]
		processes[i] = servertest.Start(t, on)
		eventually(t, "ready", func() bool { return readyNow(t, processes[i].URL) })
	}
	startAt(0)
	startAt(1)
	front := servertest.FreeAddress(t)
	part := replaceAll(t, example(t, "nginx", "toll.conf"), "127.0.0.1:8402", listen[0], "127.0.0.1:8403", listen[1], "443 ssl", front)
	var kept []string
	for line := range strings.Lines(part) { // TLS is not what this is about
		if !strings.Contains(line, "ssl_certificate") {
			kept = append(kept, line)
		}
	}
	startNginx(t, front, strings.Join(kept, ""))

	s := newStand(t, "http://"+front, builder, subscriber, 1_000_000)
	y := newTally()
	ctx, stop := context.WithCancel(t.Context())
	running, done := load(ctx, 8, y, func(int) *stand { return s })
	for restart := range 4 {
		i := restart % len(processes)
		target := done.Load() + 200
		eventually(t, "load", func() bool { return done.Load() > target })
		must.Do(t, processes[i].Signal(syscall.SIGTERM))
		if code, err := processes[i].Wait(patience); err != nil || code != 0 {
			t.Fatalf("exit %d: %v\n%s", code, err, processes[i].Log)
		}
		startAt(i)
	}
	target := done.Load() + 200
	eventually(t, "load after the restarts", func() bool { return done.Load() > target })
	stop()
	running.Wait()
	t.Logf("%d answered at the first try", len(y.answers))
	if lost := len(y.unknown) + len(y.refused); lost > 0 {
		t.Errorf("%d requests have no answer at their first try", lost)
	}
	y.repeat(t, s)
}

// startNginx runs nginx with a part of its configuration until the test ends.
func startNginx(t *testing.T, listen, part string) {
	t.Helper()
	dir, config := nginxWith(t, part)
	var out bytes.Buffer
	cmd := exec.Command("nginx", "-p", dir, "-c", config)
	cmd.Stderr, cmd.Stdout = &out, &out
	must.Do(t, cmd.Start())
	var over atomic.Bool
	var ended sync.WaitGroup
	ended.Go(func() {
		_ = cmd.Wait()
		over.Store(true)
	})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it ends its workers
		ended.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
			t.Logf("nginx: %s\n%.4000s", out.String(), log)
		}
	})
	eventually(t, "nginx listens", func() bool {
		if over.Load() {
			t.Fatalf("nginx has ended: %s", out.String())
		}
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}
