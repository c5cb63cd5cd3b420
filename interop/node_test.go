package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// published returns the files that the package of the plug-in consists of.
func published(t *testing.T) []string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("..", "sdk", "x402", "package.json")))(t)
	var manifest struct{ Files []string }
	if err := json.Unmarshal(text, &manifest); err != nil || len(manifest.Files) == 0 {
		t.Fatalf("package.json of the plug-in: %v", err)
	}
	return append(manifest.Files, "package.json")
}

// role is a process of node that takes commands as lines. It is safe for concurrent use.
type role struct {
	name string
	log  *servertest.Log // what it writes beside its answers
	in   io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan<- reply
	ended   error
}

type reply struct {
	ID    int
	Value json.RawMessage
	Error string
}

// start runs a program of js until the test ends.
func (n node) start(t *testing.T, dir, name string) *role {
	t.Helper()
	r := &role{name: name, log: &servertest.Log{}, waiting: map[int]chan<- reply{}}
	cmd := exec.Command(n.program, filepath.Join(dir, name+".mjs"))
	cmd.Stderr = r.log
	cmd.WaitDelay = time.Second
	var err error
	if r.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.read(out)
	}()
	t.Cleanup(func() {
		_ = r.in.Close()
		stop := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		<-read
		_ = cmd.Wait() // a process that was killed has nothing to say
		stop.Stop()
		if t.Failed() {
			t.Logf("%s:\n%s", name, r.log)
		}
	})
	return r
}

func (r *role) read(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		var a reply
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		r.mu.Lock()
		if err != nil {
			r.ended = err
			for _, w := range r.waiting {
				close(w)
			}
			clear(r.waiting)
			r.mu.Unlock()
			_, _ = io.Copy(io.Discard, lines)
			return
		}
		if w := r.waiting[a.ID]; w != nil {
			w <- a
			delete(r.waiting, a.ID)
		}
		r.mu.Unlock()
	}
}

const roleWait = 3 * time.Minute

// do gives a command and reads its answer into out, which may be nil.
func (r *role) do(command string, args, out any) error {
	w := make(chan reply, 1)
	r.mu.Lock()
	if r.ended != nil {
		r.mu.Unlock()
		return errors.New(r.name + " has ended: " + r.log.String())
	}
	r.last++
	id := r.last
	r.waiting[id] = w
	line, err := json.Marshal(map[string]any{"id": id, "command": command, "args": args})
	if err == nil {
		_, err = r.in.Write(append(line, '\n'))
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a, ok := <-w:
		switch {
		case !ok:
			return errors.New(r.name + " has ended: " + r.log.String())
		case a.Error != "":
			return errors.New(r.name + ": " + command + ": " + a.Error)
		case out == nil:
			return nil
		}
		return json.Unmarshal(a.Value, out)
	case <-time.After(roleWait):
		return errors.New(r.name + ": " + command + ": no answer")
	}
}
