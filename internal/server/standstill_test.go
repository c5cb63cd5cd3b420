package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/server"
)

const (
	envStandstill = "STANDSTILL"
	standstill    = time.Second
)

// stoodStill says whether the time of a shutdown is over after a standstill, during which the test writes a line.
func stoodStill() {
	ctx, cancel := server.Within(context.Background(), standstill)
	defer cancel()
	fmt.Println("begun")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end will do
	time.Sleep(standstill / 20)                       // for who ends the time
	if ctx.Err() == nil {
		fmt.Println("goes on")
	}
	<-ctx.Done()
	fmt.Println("ended")
}

// A process that stands still in the midst of its shutdown has the rest of its time afterwards.
func TestShutdownStandsStill(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envStandstill+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // it may have ended
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("%q, %v", line, err)
	}
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if s == syscall.SIGCONT {
			time.Sleep(standstill + standstill/5)
			if _, err := io.WriteString(in, "\n"); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	rest, err := io.ReadAll(said)
	if err != nil || strings.TrimSpace(string(rest)) != "goes on\nended" {
		t.Errorf("after a standstill: %q, %v", rest, err)
	}
}
