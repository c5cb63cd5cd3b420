//go:build linux && amd64

package server_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
)

const envFlush = "TOLL_FLUSH_DATA"

// TestFlushFails takes fsync away from a process that serves. It must acknowledge nothing more, end by itself, and a
// restart must find what was acknowledged before.
// F16
func TestFlushFails(t *testing.T) {
	if dir := os.Getenv(envFlush); dir != "" {
		flushChild(t, dir)
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFlushFails$", "-test.v")
	cmd.Env = append(os.Environ(), envFlush+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the service ended by itself") {
		t.Fatalf("%v\n%s", err, out)
	}
	st := must.Get(store.Open(context.Background(), store.Config{Data: dir}))(t)
	defer st.Close()
	l := ledger.New(st, ledger.Config{MACKey: make([]byte, 32)})
	defer l.Close(context.Background())
	found, err := l.Audit(context.Background())
	if err != nil || len(found) > 0 {
		t.Fatal(found, err)
	}
	a, err := l.Account(context.Background(), ledger.NewAccountID("11", toll.Address{1}))
	if err != nil || a.Balance < 5 {
		t.Fatalf("the balance is %d, %v", a.Balance, err)
	}
}

func flushChild(t *testing.T, dir string) {
	s := must.Get(server.New(context.Background(), server.Config{Data: dir}))(t)
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), ln) }()
	l := server.LedgerOf(s)
	mint := func(ref string) error {
		_, err := l.Mint(context.Background(), ledger.MintOp{Plan: "11", Subscriber: toll.Address{1}, Amount: 5, Ref: ref})
		return err
	}
	must.Do(t, mint("before"))
	refuseFlush(t)
	if err := mint("in doubt"); !errors.Is(err, ledger.ErrUnknownOutcome) {
		t.Fatalf("got %v, want %v", err, ledger.ErrUnknownOutcome)
	}
	if err := mint("after"); err == nil {
		t.Fatal("a mint after a failed flush was acknowledged")
	}
	select {
	case err := <-served:
		if !errors.Is(err, store.ErrFlush) {
			t.Fatal(err)
		}
		t.Log("the service ended by itself")
	case <-time.After(patience):
		t.Fatal("the service goes on after a failed flush")
	}
}

// refuseFlush makes fsync and fdatasync of this process fail with EIO from now on, by a seccomp filter on all threads.
func refuseFlush(t *testing.T) {
	t.Helper()
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(nr uint32, to uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jt: to}
	}
	const retErrno, retAllow = 0x00050000, 0x7fff0000 // SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW
	filter := []unix.SockFilter{
		stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0), // the number of the system call
		jump(unix.SYS_FSYNC, 2),
		jump(unix.SYS_FDATASYNC, 1),
		stmt(unix.BPF_RET|unix.BPF_K, retAllow),
		stmt(unix.BPF_RET|unix.BPF_K, retErrno|uint32(unix.EIO)),
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	must.Do(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	const setFilter, onAllThreads = 1, 1 // SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, onAllThreads, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		t.Fatal(errno)
	}
}
