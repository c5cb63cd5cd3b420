package server_test

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// asStranger returns a script that runs a program as uid 65534 without capabilities, when root runs the test.
func asStranger(t *testing.T, program string, dirs ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return program
	}
	must.Do(t, os.Chmod(filepath.Dir(program), 0o755))
	for _, dir := range dirs {
		must.Do(t, os.Chown(dir, 65534, 65534))
	}
	script := filepath.Join(filepath.Dir(program), "as-stranger")
	text := "#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set -all " + program + ` "$@"` + "\n"
	must.Do(t, os.WriteFile(script, []byte(text), 0o755))
	return script
}

// TestDrainWithoutRoot: a process without root restarts under clients that connect for each request. Each established connection gets
// its answer; other attempts are refused or time out.
// F22
func TestDrainWithoutRoot(t *testing.T) {
	t.Parallel()
	data := must.Get(os.MkdirTemp("", "toll-drain-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	program := asStranger(t, servertest.Program(t), data)
	o := servertest.Options{Data: data, Listen: servertest.FreeAddress(t), Args: []string{"--drain", "2s", "--rate-limit-ip", "0"}}
	p := servertest.StartProgram(t, program, o)

	var answers, lost atomic.Int64
	ask := func() {
		c, err := net.DialTimeout("tcp", o.Listen, 3*time.Second)
		if err != nil {
			time.Sleep(10 * time.Millisecond) // nothing was sent
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = c.Write([]byte("GET /health HTTP/1.1\r\nHost: " + o.Listen + "\r\nConnection: close\r\n\r\n"))
		var res *http.Response
		if err == nil {
			res, err = http.ReadResponse(bufio.NewReader(c), nil)
		}
		if err != nil {
			t.Logf("a connection without its answer: %v", err)
			lost.Add(1)
			return
		}
		_ = res.Body.Close()
		answers.Add(1)
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 48 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					ask()
				}
			}
		})
	}
	for range 4 {
		target := answers.Load() + 200
		eventually(t, "answers", func() bool { return answers.Load() > target })
		must.Do(t, p.Signal(syscall.SIGTERM))
		if code, err := p.Wait(patience); err != nil || code != 0 {
			t.Fatalf("exit %d: %v\n%s", code, err, p.Log)
		}
		if strings.Contains(p.Log.String(), "cannot refuse new connections") {
			t.Error(p.Log)
		}
		p = servertest.StartProgram(t, program, o)
	}
	close(stop)
	clients.Wait()
	if lost.Load() > 0 {
		t.Errorf("%d of %d connections got no answer", lost.Load(), lost.Load()+answers.Load())
	}
}
