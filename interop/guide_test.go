package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
)

// block is a fenced block of a page: its language, the word behind it, and its lines.
type block struct{ language, word, text string }

func blocks(t *testing.T, page string) []block {
	t.Helper()
	text := must.Get(os.ReadFile(page))(t)
	out := blocksOf(string(text))
	if len(out) == 0 {
		t.Fatalf("%s has no blocks", page)
	}
	return out
}

func blocksOf(text string) (out []block) {
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+) ?([\\w.]*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		out = append(out, block{m[1], m[2], m[3]})
	}
	return out
}

var installs = regexp.MustCompile(`(?m)^(go install|npm init|npm install|mkdir -p try) .*\n`)

// uninstalled removes the commands that install something. The test uses the program of this checkout and the packages of
// package.json, which must have each package that the page installs, in the same version.
func uninstalled(t *testing.T, text string, from *set) string {
	t.Helper()
	manifest := must.Get(os.ReadFile(filepath.Join(from.from, "package.json")))(t)
	var packages struct{ Dependencies map[string]string }
	must.Do(t, json.Unmarshal(manifest, &packages))
	for _, line := range installs.FindAllString(text, -1) {
		for _, m := range regexp.MustCompile(`((?:@[\w-]+/)?[\w-]+)@([\w.]+)`).FindAllStringSubmatch(line, -1) {
			if packages.Dependencies[m[1]] != m[2] {
				t.Errorf("the page installs %s, and the suite has %s", m[0], packages.Dependencies[m[1]])
			}
		}
	}
	return installs.ReplaceAllString(text, "")
}

// guide is a page of docs that the test runs.
type guide struct {
	page    string
	from    *set
	servers map[string]http.Handler // that the page sells, by address
	service bool                    // the page begins with the section of SELL.md that starts a service
}

func TestGuide(t *testing.T) {
	for _, g := range append([]guide{
		{page: "SELL.md", from: payments}, {page: "BUY.md", from: payments}, {page: "guides/x402-fetch.md", from: payments},
		{page: "guides/wallet.md", from: payments}, {page: "guides/mcp-client.md", from: mcpClients}, {page: "guides/chat.md", from: mcpClients},
	}, sellers...) {
		t.Run(path.Base(g.page), func(t *testing.T) {
			t.Parallel()
			follow(t, g)
		})
	}
}

// follow runs a page as a person does. It saves the blocks of programs and settings, runs all commands in one shell, and compares the output
// of a block with the text block after it, in which … matches any text. After a block of a buyer, the API key is the builder's again. A block
// with the word "later" runs again until it prints the text.
func follow(t *testing.T, g guide) {
	t.Helper()
	n := g.from.find(t)
	if g.from != payments {
		n = n.recent(t)
	}
	dir := n.workDir(t)
	upstream := servertest.FreeAddress(t)
	addresses := []string{"127.0.0.1:8402", servertest.FreeAddress(t), "127.0.0.1:8403", servertest.FreeAddress(t),
		"127.0.0.1:8404", servertest.FreeAddress(t)}
	for address, handler := range g.servers {
		addresses = append(addresses, address, strings.TrimPrefix(serve(t, handler), "http://"))
	}
	ports := strings.NewReplacer(append(addresses, "127.0.0.1:3000", upstream, "127.0.0.1 3000", strings.Replace(upstream, ":", " ", 1))...)
	environment := append(os.Environ(), "PATH="+strings.Join([]string{
		filepath.Dir(servertest.Program(t)), filepath.Dir(n.program), filepath.Join(n.packages, "node_modules", ".bin"), os.Getenv("PATH")}, ":"),
		"HOME="+t.TempDir(), "NO_COLOR=1", "MODEL_KEY="+sellerKey)

	const mark = "\x1e"
	script := "set -e\n"
	var want []string
	all := blocks(t, filepath.Join("..", "docs", g.page))
	if g.service {
		text := must.Get(os.ReadFile(filepath.Join("..", "docs", "SELL.md")))(t)
		start := blocksOf(between(t, string(text), "\n## Start the service\n", "\n## "))
		all = append(start, all...)
	}
	for i, b := range all {
		text := ports.Replace(b.text)
		switch b.language {
		case "js", "ts", "python", "yaml":
			must.Do(t, os.WriteFile(filepath.Join(dir, b.word), []byte(text), 0o644))
		case "sh":
			if text = uninstalled(t, text, g.from); b.word == "background" {
				background(t, dir, environment, text)
				continue
			}
			switch b.word {
			case "buyer":
				text = "builder=$TOLL_API_KEY\n" + text + "export TOLL_API_KEY=$builder\n"
			case "later":
				file := fmt.Sprintf("want%d", i)
				must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(all[i+1].text), 0o644))
				text = "later() {\n" + text + "}\nfor i in $(seq 120); do later >got; cmp -s got " + file + " && break; sleep 0.5; done\ncat got\n"
			}
			script += text + "printf '" + mark + "'\n"
			want = append(want, "")
		case "text":
			want[len(want)-1] = text
		default:
			t.Errorf("a block of %s %s", b.language, b.word)
		}
	}
	shell := exec.Command("sh", "-c", script)
	shell.Dir, shell.Env = dir, environment
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // for programs that the page starts in the background
	defer func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM) }()
	var problems bytes.Buffer
	shell.Stderr = &problems
	out, err := shell.Output()
	if err != nil {
		t.Errorf("%v: %s", err, &problems)
	}
	printed := strings.Split(string(out), mark)
	for i, w := range want {
		if i >= len(printed)-1 {
			t.Fatalf("block %d did not run", i+1)
		}
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(w), "…", ".*") + "$"
		if !regexp.MustCompile(pattern).MatchString(printed[i]) {
			t.Errorf("block %d printed %q, the page says %q", i+1, printed[i], w)
		}
	}
}

// background starts what stays up until the test ends, and waits until it answers.
func background(t *testing.T, dir string, environment []string, text string) {
	t.Helper()
	text = strings.ReplaceAll("\n"+text, "\ntoll ", "\nexec toll ") // the signal at the end is for the program
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sh", "-c", "cd "+dir+text)
	log := &servertest.Log{}
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.WaitDelay = log, log, environment, 5*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	isUp := func() bool {
		if strings.Contains(text, "toll dev") && !strings.Contains(log.String(), "The demo keeps running") {
			return false
		}
		for _, m := range regexp.MustCompile(`listen (127\.0\.0\.1:\d+)`).FindAllStringSubmatch(text, -1) {
			c, err := net.Dial("tcp", m[1])
			if err != nil {
				return false
			}
			_ = c.Close()
		}
		return true
	}
	for end := time.Now().Add(3 * time.Minute); !isUp(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) || len(ended) > 0 {
			t.Fatalf("it does not stay up:\n%s", log)
		}
	}
}

// The page of the plug-in shows a client and a server; here they meet.
func TestReadme(t *testing.T) {
	t.Parallel()
	a := cast(t)
	s := inside(t, server.Config{})
	c := newScene(t, s, a)
	n := findNode(t)
	dir := n.workDir(t)
	address := servertest.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	must.Do(t, err)
	shown := blocks(t, filepath.Join("..", "sdk", "x402", "README.md"))
	if len(shown) != 2 {
		t.Fatalf("%d blocks", len(shown))
	}
	buys := strings.ReplaceAll(shown[0].text, resource, "http://"+address+"/ask") + "console.log(await response.text());\n"
	sells := strings.ReplaceAll(shown[1].text, "https://pay.example.com", s.url) +
		"app.listen(" + port + `, "127.0.0.1", () => console.log("up"));` + "\n"
	for name, text := range map[string]string{"buys.mjs": buys, "sells.mjs": sells} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	environment := append(os.Environ(), "TOLL_API_KEY="+c.builder.Key, "PLAN_ID="+string(c.plan), "AGENT_ID="+string(c.agent), "ACCESS_TOKEN="+c.token)
	selling := exec.Command(n.program, "sells.mjs")
	selling.Dir, selling.Env = dir, environment
	log := &servertest.Log{}
	selling.Stdout, selling.Stderr = log, log
	must.Do(t, selling.Start())
	t.Cleanup(func() {
		_ = selling.Process.Kill()
		_ = selling.Wait() // it was killed
	})
	for end := time.Now().Add(3 * time.Minute); !strings.Contains(log.String(), "up\n"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the server does not start:\n%s", log)
		}
	}
	buying := exec.Command(n.program, "buys.mjs")
	buying.Dir, buying.Env = dir, environment
	out, err := buying.CombinedOutput()
	if err != nil || string(out) != `{"answer":42}`+"\n" {
		t.Errorf("%v %s\n%s", err, out, log)
	}
	if b := c.balance(); b.Balance != 95 {
		t.Errorf("balance %d", b.Balance)
	}
}
