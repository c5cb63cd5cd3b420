package checkout_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// commitEater passes connections on to PostgreSQL. While it is armed, it keeps the answer to the next commit and cuts that connection;
// while it is down, it cuts all of them then and takes no new one.
type commitEater struct {
	net.Listener
	server      string
	armed, down atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
}

func newCommitEater(t *testing.T, server string) *commitEater {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &commitEater{Listener: l, server: server}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go e.pass(c)
		}
	}()
	return e
}

func (e *commitEater) pass(client net.Conn) {
	defer client.Close()
	if e.down.Load() {
		return
	}
	server, err := net.Dial("tcp", e.server)
	if err != nil {
		return
	}
	defer server.Close()
	e.mu.Lock()
	e.conns = append(e.conns, client)
	e.mu.Unlock()
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if bytes.Contains(buf[:n], []byte("COMMIT\x00")) && e.armed.CompareAndSwap(true, false) {
			if e.down.Load() {
				e.cutAll()
			}
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

func (e *commitEater) cutAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		_ = c.Close()
	}
}

// TestWithdraw_LostCommit: the database committed, and the service did not hear of it. Credits are taken back once: a service that
// reaches the database again answers with what was committed; one that does not says that it does not know, and a repeat with
// the same Idempotency-Key takes nothing more. A commit inside the process, as with SQLite, has no answer to lose.
func TestWithdraw_LostCommit(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.Postgres, storetest.Partitioned} {
		for name, c := range map[string]struct{ keyed, down bool }{"back": {}, "back, with a key": {keyed: true}, "gone": {true, true}} {
			t.Run(string(v)+"/"+name, func(t *testing.T) {
				cfg := storetest.Config(t, v)
				dsn, err := url.Parse(cfg.Database)
				if err != nil {
					t.Fatal(err)
				}
				eater := newCommitEater(t, dsn.Host)
				dsn.Host = eater.Addr().String()
				s := &shop{T: t, ctx: context.Background(), queues: map[*checkout.Checkout]*jobs.Queue{}}
				s.now.Store(start.UnixMicro())
				direct := storetest.OpenConfig(t, cfg)
				cfg.Database = dsn.String()
				through, err := store.Open(context.Background(), cfg)
				s.must(err)
				t.Cleanup(func() { _ = through.Close() })
				room := func(st *store.Store) *checkout.Checkout {
					l := ledger.New(st, ledger.Config{Clock: s.clock, MACKey: []byte("0123456789abcdef0123456789abcdef")})
					t.Cleanup(func() {
						found, err := l.Audit(context.Background())
						if err := errors.Join(err, l.Close(context.Background())); err != nil || len(found) > 0 {
							t.Error(err, found)
						}
					})
					s.ledgers = append(s.ledgers, l)
					return s.open(checkout.Deps{Store: st, Ledger: l, Clock: s.clock})
				}
				s.store = direct
				sure, unsure := room(direct), room(through)
				p := s.plan(nil)
				_, err = sure.Mint(s.ctx, owner, p.ID, holder, 10, toll.Units{}, nil)
				s.must(err)
				var once *store.Once
				if c.keyed {
					once = &store.Once{Scope: toll.NewHash(), Body: toll.NewHash(), At: s.clock(), Since: start.Add(-1), Seal: x402.Encode}
				}
				eater.armed.Store(true)
				eater.down.Store(c.down)
				out, err := unsure.Withdraw(s.ctx, owner, p.ID, holder, 4, once)
				if eater.armed.Load() {
					t.Fatal("no answer to a commit was lost")
				}
				if c.down {
					s.code(err, toll.CodeDatabaseUnavailable)
				} else if s.must(err); out.Data["balance"] != toll.Credits(6) {
					t.Errorf("%+v", out)
				}
				if a := s.account(p, holder); a.Balance != 6 || a.TakenBack != 4 {
					t.Fatalf("after the lost answer: %+v", a)
				}
				if c.keyed {
					eater.down.Store(false)
					if _, err := unsure.Withdraw(s.ctx, owner, p.ID, holder, 4, once); err == nil || !once.Lost {
						t.Errorf("the repeat: %v", err)
					}
					if _, err := store.Answer(s.ctx, direct, once.Scope, start.Add(-1)); err != nil {
						t.Errorf("the stored answer: %v", err)
					}
				}
				if a := s.account(p, holder); a.Balance != 6 || a.TakenBack != 4 {
					t.Errorf("after the repeat: %+v", a)
				}
				var acts int
				s.must(direct.QueryRow(s.ctx, "SELECT COUNT(*) FROM audit_log WHERE act = 'credits.taken_back'").Scan(&acts))
				if acts != 1 {
					t.Errorf("%d entries in the audit log, want 1", acts)
				}
			})
		}
	}
}
