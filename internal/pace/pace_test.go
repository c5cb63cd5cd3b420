package pace

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll/internal/must"
)

// pair is a connection of 1 KiB a second with ten seconds of patience, and its peer. What is written waits until it is read.
func pair(t *testing.T) (server, peer net.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return &conn{Conn: a, patience: 10 * time.Second, minRate: 1 << 10}, b
}

// reads has the peer read n bytes every so often until the connection ends. It returns what ends the connection and waits for that.
func reads(server, peer net.Conn, n int, every time.Duration) (end func()) {
	var done sync.WaitGroup
	done.Go(func() {
		for b := make([]byte, n); ; time.Sleep(every) {
			if _, err := io.ReadFull(peer, b); err != nil {
				return
			}
		}
	})
	return func() {
		_ = server.Close()
		done.Wait()
	}
}

// T173
func TestSlowReaderIsCut(t *testing.T) {
	for name, tt := range map[string]struct {
		chunk, bytes int
		every        time.Duration // in which the peer reads so many bytes
		want         time.Duration // after which it is cut
	}{
		"never reads":            {1 << 10, 0, time.Hour, 11 * time.Second},
		"a byte a second":        {1 << 10, 1, time.Second, 11 * time.Second},
		"half of the rate":       {1 << 10, 512, time.Second, 22 * time.Second},
		"half, in small writes":  {128, 512, time.Second, 20 * time.Second},
		"half, in one write":     {1 << 20, 512, time.Second, 22 * time.Second},
		"pauses, and then again": {1 << 10, 1 << 10, 3 * time.Second, 16 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, peer := pair(t)
				if tt.bytes > 0 {
					defer reads(server, peer, tt.bytes, tt.every)()
				}
				began := time.Now()
				var err error
				for err == nil && time.Since(began) < time.Hour {
					_, err = server.Write(make([]byte, tt.chunk))
				}
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < tt.want-3*time.Second || took > tt.want+3*time.Second {
					t.Errorf("%v after %v, want %v", err, took, tt.want)
				}
			})
		})
	}
}

// T173
func TestOthersAreNot(t *testing.T) {
	for name, tt := range map[string]struct {
		chunk, bytes int
		every, idle  time.Duration
	}{
		"at the rate":                        {1 << 10, 1 << 10, time.Second, 0},
		"faster":                             {4 << 10, 4 << 10, time.Second, 0},
		"a stream, paused":                   {64, 4 << 10, 0, time.Minute},
		"late now and then, and then faster": {4 << 10, 4 << 10, 3 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, peer := pair(t)
				defer reads(server, peer, tt.bytes, tt.every)()
				for range 300 {
					must.Get(server.Write(make([]byte, tt.chunk)))(t)
					time.Sleep(tt.idle)
				}
			})
		})
	}
}

// The deadline of the server counts too, and before ours where it is earlier.
func TestServersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{100, 100 << 10} {
			server, _ := pair(t)
			_ = server.SetWriteDeadline(time.Now().Add(2 * time.Second))
			began := time.Now()
			if _, err := server.Write(make([]byte, n)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 2*time.Second {
				t.Errorf("%d bytes: %v after %v", n, err, time.Since(began))
			}
		}
		// A long write does not leave its deadline to a short one.
		server, peer := pair(t)
		_ = server.SetWriteDeadline(time.Now().Add(time.Hour))
		defer reads(server, peer, 8<<10, 0)()
		must.Get(server.Write(make([]byte, 5<<10)))(t)
		time.Sleep(30 * time.Minute)
		if _, err := server.Write(make([]byte, 100)); err != nil {
			t.Error(err)
		}
	})
}

// TestShortWriteHasItsOwnDeadline: the answers that fill the buffers of a connection may end with a short write. It does
// not wait as long as the server lets a whole request take.
// T173
func TestShortWriteHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, peer := pair(t)
		go func() { _, _ = io.ReadFull(peer, make([]byte, 10*100)) }()
		var err error
		began := time.Now()
		for err == nil && time.Since(began) < time.Hour {
			// As net/http does for each request.
			_ = server.SetWriteDeadline(time.Now().Add(2 * time.Minute))
			_, err = server.Write(make([]byte, 100))
		}
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took > 11*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
