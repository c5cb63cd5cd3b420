package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
)

const (
	envIdle        = "TOLL_TEST_IDLE" // address and number of connections of a process that holds them
	idlePerProcess = 8_000
)

// openIdle starts a process that holds n idle connections until the test ends, and returns when all are open. One process may not have
// enough descriptors for all connections of the test.
func openIdle(t *testing.T, address string, n int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestIdleConnections$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", envIdle, address, n))
	in := must.Get(cmd.StdinPipe())(t)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(t, err)
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasSuffix(lines.Text(), "idle connections are open") {
			return
		}
	}
	t.Fatalf("the process with %d idle connections ended", n)
}

// holdIdle opens the connections of [openIdle] and holds them until its input ends.
func holdIdle(t *testing.T, text string) {
	address, number, _ := strings.Cut(text, " ")
	n := must.Get(strconv.Atoi(number))(t)
	for i := range n {
		conn, err := net.DialTimeout("tcp", address, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
	}
	fmt.Println("idle connections are open")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestIdleConnections: more idle connections than the service may have do not keep requests from being served, nor a thousand busy
// connections of one source. The service has 20,000 descriptors for 20,400 idle connections in the long run, else a tenth of both.
// T173
func TestIdleConnections(t *testing.T) {
	if address := os.Getenv(envIdle); address != "" {
		holdIdle(t, address)
		return
	}
	t.Parallel()
	descriptors, idle, busy := 2_000, 2_040, 1_000
	if rounds.All() {
		descriptors, idle = 20_000, 20_400
	}
	var own syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own))
	if need := uint64(max(busy, idlePerProcess) + 500); own.Cur < need {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: need, Max: max(own.Max, need)}); err != nil {
			t.Fatalf("this test needs %d descriptors: %v", need, err)
		}
	}
	script := filepath.Join(t.TempDir(), "limited")
	text := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", descriptors, servertest.Program(t))
	must.Do(t, os.WriteFile(script, []byte(text), 0o755))
	o := servertest.Options{Data: t.TempDir(), Listen: servertest.FreeAddress(t), Args: []string{"--rate-limit-ip", "0"}}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	p := servertest.StartProgram(t, script, o)
	c := newStand(t, p.URL, builder, subscriber, 1000)

	for left := idle; left > 0; left -= idlePerProcess {
		openIdle(t, o.Listen, min(left, idlePerProcess))
	}
	for i := range 20 {
		if r, err := c.settle(t.Context(), fmt.Sprint("beside-idle-ones-", i)); err != nil || !r.Success {
			t.Fatalf("settlement %d: %+v, %v", i, r, err)
		}
	}
	var failed atomic.Int64
	var clients sync.WaitGroup
	start := make(chan struct{})
	for range busy {
		h := &http.Client{Transport: &http.Transport{}, Timeout: patience}
		clients.Go(func() {
			<-start
			for range 3 {
				res, err := h.Get(p.URL + "/health")
				if err != nil || res.StatusCode != http.StatusOK {
					t.Logf("%v %v", res, err)
					failed.Add(1)
					return
				}
				_ = res.Body.Close()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	close(start)
	clients.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d busy connections were not served", failed.Load(), busy)
	}
	if strings.Contains(p.Log.String(), "too many open files") {
		t.Error(p.Log)
	}
}
