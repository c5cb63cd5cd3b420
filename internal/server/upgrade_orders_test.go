package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/rounds"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// twoMachines is the last commit in which an order and its payment were two state machines. What it left behind, this release has to
// finish.
const twoMachines = "c677e30ba15c1d19b5ea3565899d795a8530ee42"

// earlier returns the program of twoMachines.
func earlier(t *testing.T) string {
	t.Helper()
	return releaseOf(t, twoMachines)
}

// releaseOf returns the program of a commit, which is built once. Without the history of the repository the test is skipped.
func releaseOf(t *testing.T, commit string) string {
	t.Helper()
	mod, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tollhq/toll").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root := strings.TrimSpace(string(mod))
	if err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("the history of this clone does not reach commit %.7s: fetch it with git fetch --unshallow", commit)
	}
	path := filepath.Join(filepath.Dir(servertest.Program(t)), "toll-"+commit[:7])
	dir := t.TempDir()
	releases.Lock()
	defer releases.Unlock()
	if _, err := os.Stat(path); err == nil {
		return path
	}
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--output", dir + ".tar", commit}, {"tar", "-xf", dir + ".tar", "-C", dir},
		{"go", "build", "-C", dir, "-ldflags=-s -w", "-o", path, "./cmd/toll"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	return path
}

var releases sync.Mutex // builds one at a time

// takeover is a database that goes from one release to the next with what is open in it, and the chain outside.
type takeover struct {
	*bazaar
	o      servertest.Options
	before string // program of the earlier release
	keys   map[string]toll.APIKey
	orders map[string]toll.PlanID // what a buyer orders
}

// newTakeover makes a database with the earlier release, and what these buyers need.
func newTakeover(t *testing.T, o servertest.Options, buyers ...string) *takeover {
	t.Helper()
	s := &takeover{before: earlier(t), o: o, keys: map[string]toll.APIKey{}, orders: map[string]toll.PlanID{}}
	public := chaintest.New(t)
	s.bazaar = &bazaar{public: public, double: chaintest.NewDouble(t, public.Client()), till: till{t, public.Eth()}}
	s.o.Args = []string{"--chain-rpc-urls", s.double.URL, "--chain-confirmations", "3", "--chain-batch-window", "1ms", "--order-wait", "1s"}
	for _, name := range append(buyers, "builder") {
		k := keyBy(t, s.before, s.o, name)
		s.keys[name] = k
		if name != "undone" {
			s.give(k.Address, usdc, 10_000_000)
		}
	}
	return s
}

// keyBy makes an API key with a release of the program, which makes the schema, too.
func keyBy(t *testing.T, program string, o servertest.Options, account string) (k toll.APIKey) {
	t.Helper()
	out, code := servertest.Run(t, program, o, "keys", "create", "--local", "--init", "--account", account, "-o", "json")
	if err := json.Unmarshal([]byte(out[max(strings.Index(out, "{"), 0):]), &k); err != nil || code != 0 {
		t.Fatalf("toll keys create: %d %v\n%s", code, err, out)
	}
	return k
}

// serves runs a release, and has the buyers use it.
func (s *takeover) serves(program string) *servertest.Process {
	s.Helper()
	p := servertest.StartProgram(s.T, program, s.o)
	s.uses(p)
	return p
}

func (s *takeover) uses(p *servertest.Process) {
	s.url, s.builder, s.owner = p.URL, p.Client(s.keys["builder"].Key, servertest.Patient), s.keys["builder"].Address
}

func (s *takeover) who(name string) *buyer {
	k := s.keys[name]
	return &buyer{client.New(k.Key, client.WithURL(s.url), servertest.Patient), k.Address, s.bazaar, client.New(k.Key, client.WithURL(s.url), client.WithRetries(0))}
}

// query reads one row of the database, whatever its schema is.
func (s *takeover) query(statement string, args []any, to ...any) error {
	st, err := store.Open(s.Context(), store.Config{Data: s.o.Data, Database: s.o.Database, ReadOnly: true, Schema: store.AnySchema})
	if err != nil {
		return err
	}
	defer st.Close()
	return st.QueryRow(s.Context(), statement, args...).Scan(to...)
}

func (s *takeover) count(statement string, args ...any) (n int64) {
	s.Helper()
	if err := s.query(statement, args, &n); err != nil {
		s.Fatal(err)
	}
	return n
}

// blocks makes n blocks.
func (s *takeover) blocks(n int) {
	s.Helper()
	for range n {
		s.give(toll.Address{0xb1}, usdc, 1)
	}
}

// leaves has a buyer order in the background until what pays the order is in a state.
func (s *takeover) leaves(name, state string, order func(ctx context.Context, b *buyer, plan toll.PlanID)) {
	s.Helper()
	b, plan := s.who(name), s.orders[name]
	ctx, enough := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		order(ctx, b, plan)
	}()
	eventually(s.T, "an order whose payment is "+state, func() bool {
		var is string
		err := s.query(`SELECT c.state FROM orders o JOIN chain_ops c ON c.op_id = o.order_id WHERE o.plan_id = $1 AND o.open_key IS NOT NULL`,
			[]any{string(plan)}, &is)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			s.Fatal(err)
		}
		return err == nil && is == state
	})
	enough()
	<-done
}

func byWallet(ctx context.Context, b *buyer, plan toll.PlanID) { _, _ = b.hasty.OrderPlan(ctx, plan) }

// finishes makes blocks until nothing is open.
func (s *takeover) finishes() {
	s.Helper()
	for what, statement := range map[string]string{
		"orders":      "SELECT COUNT(*) FROM orders WHERE open_key IS NOT NULL OR status = 'confirmed'",
		"operations":  "SELECT COUNT(*) FROM chain_ops WHERE state <> 'final' AND state <> 'failed' OR untold",
		"delegations": "SELECT COUNT(*) FROM delegations WHERE disable_at > 0",
	} {
		end := time.Now().Add(patience)
		for s.count(statement) > 0 {
			if time.Now().After(end) {
				s.Fatalf("%s stay open after %v: %d", what, patience, s.count(statement))
			}
			s.blocks(2)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// An earlier release leaves orders in each open state, and is killed. This one takes the database over: each order becomes final, once,
// or fails, and the books agree.
func TestF24_OrdersOfAnEarlierRelease(t *testing.T) {
	if rounds.Deferred(t) {
		return // it takes minutes: make test-all
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		ordersOfAnEarlierRelease(t, servertest.Options{Data: t.TempDir()})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		ordersOfAnEarlierRelease(t, servertest.Options{Database: storetest.Empty(t, storetest.Postgres).Database, MasterKeyFile: freshMasterKey(t)})
	})
}

func ordersOfAnEarlierRelease(t *testing.T, o servertest.Options) {
	ctx := t.Context()
	open := []string{"included", "sent", "sent by a delegation", "sale", "signed", "created"}
	s := newTakeover(t, o, append(open, "undone", "revokes")...)
	old := s.serves(s.before)
	relayer := s.fuels()
	for i, name := range append(open, "undone", "revokes") {
		s.orders[name] = s.dollar(receiver(byte(i + 1)))
	}
	mined := func() (stop func()) {
		return background(t, func(context.Context) { s.blocks(1); time.Sleep(100 * time.Millisecond) })
	}
	revoker, undone := s.who("revokes"), s.who("undone")
	gone, limit := revoker.limit("usdc", 1000), undone.limit("usdc", 1000)
	sentBy := s.who("sent by a delegation").limit("usdc", 1000)
	token := undone.access(s.orders["undone"], "")
	stop := mined()
	revoker.buys(s.orders["revokes"], client.PaidBy(gone))
	stop()

	// The money of a buyer and his payment are in blocks that go, after credits are held: what the hold keeps is taken back later.
	// Blocks become final 32 at a time: this is done before the next ones do.
	first, err := s.node.BlockNumber(ctx)
	for ; err == nil && first%32 != 2; first, err = s.node.BlockNumber(ctx) {
		s.blocks(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.give(undone.Address, usdc, 1_000_000)
	s.leaves("undone", "included", func(ctx context.Context, b *buyer, plan toll.PlanID) {
		_, _ = b.hasty.OrderPlan(ctx, plan, client.PaidBy(limit))
	})
	s.blocks(3)
	eventually(t, "the order is paid", func() bool {
		return s.count("SELECT COUNT(*) FROM orders WHERE plan_id = $1 AND status = 'confirmed'", string(s.orders["undone"])) == 1
	})
	v, err := s.builder.Verify(ctx, &x402.VerifyRequest{
		PaymentRequired: accepts(s.orders["undone"]), AccessToken: token, MaxAmount: toll.Credits(40).Ptr(), Hold: true, HoldSecs: 900,
	})
	if err != nil || !v.IsValid {
		t.Fatalf("%+v, %v", v, err)
	}
	last, err := s.node.BlockNumber(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.reorg(int(last-first), true)
	stop = mined()
	eventually(t, "credits are held back", func() bool {
		return s.count("SELECT COUNT(*) FROM orders WHERE plan_id = $1 AND held_back = 40", string(s.orders["undone"])) == 1
	})
	stop()

	wallet := newPocket(t, s.url)
	s.give(wallet.Address(), usdc, 1_000_000)
	s.leaves("included", "included", byWallet)
	s.double.Swallow()
	if _, err := revoker.RevokeDelegation(ctx, gone); err != nil {
		t.Fatal(err)
	}
	s.leaves("sent", "sent", byWallet)
	s.leaves("sent by a delegation", "sent", func(ctx context.Context, b *buyer, plan toll.PlanID) {
		_, _ = b.hasty.OrderPlan(ctx, plan, client.PaidBy(sentBy))
	})
	s.leaves("sale", "sent", func(ctx context.Context, _ *buyer, plan toll.PlanID) {
		wallet.once(ctx, saleRoute(plan), "PAYMENT-SIGNATURE", wallet.payment(wallet.asks(saleRoute(plan))))
	})
	s.double.Answer("eth_getTransactionCount", func(params []json.RawMessage) (any, error) {
		if strings.Contains(strings.ToLower(string(params[0])), strings.ToLower(relayer.Hex())) {
			return nil, &chaintest.Refusal{Code: -32000, Message: "not now"}
		}
		return nil, chaintest.ErrPass
	})
	s.leaves("signed", "signed", byWallet)
	s.double.Refuse(-1, "eth_call", "not now")
	s.double.Refuse(-1, "eth_getCode", "not now")
	s.leaves("created", "created", byWallet)
	old.Kill()

	s.double.Clear()
	next := s.serves(servertest.Program(t))
	s.finishes()
	if _, err := s.builder.Release(ctx, &x402.ReleaseRequest{AgentRequestID: v.AgentRequestID}); err != nil {
		t.Error(err)
	}
	eventually(t, "all that is left of the undone order is taken back", func() bool {
		return s.count("SELECT COUNT(*) FROM orders WHERE plan_id = $1 AND status = 'failed' AND held_back = 0 AND taken_back = 100",
			string(s.orders["undone"])) == 1
	})
	for i, name := range open {
		r := receiver(byte(i + 1))
		if n := s.count("SELECT COUNT(*) FROM orders WHERE plan_id = $1 AND status = 'final'", string(s.orders[name])); n != 1 || s.has(r, usdc) != 1_000_000 {
			t.Errorf("%s: %d orders are final, and %d units have arrived", name, n, s.has(r, usdc))
		}
	}
	next.Kill()
	auditAfter(t, s.o)
}

// fuels gives the relayer of the service gas money, and returns it.
func (s *takeover) fuels() (relayer common.Address) {
	s.Helper()
	eventually(s.T, "the relayer is known", func() bool {
		var text string
		err := s.query("SELECT address FROM chain_keys WHERE role = 'relayer'", nil, &text)
		relayer = common.HexToAddress(text)
		return err == nil
	})
	if _, err := s.public.Fund(s.Context(), relayer, toll.UnitsOf(1_000_000_000_000_000_000).Int()); err != nil {
		s.Fatal(err)
	}
	return relayer
}

// The earlier release and this one, which has added to the schema beside it, serve orders of one database at the same time. One of
// them is killed in between, and the other finishes what both have begun.
func TestF24_OrdersOfTwoReleases(t *testing.T) {
	if rounds.Deferred(t) {
		return // it takes minutes: make test-all
	}
	for _, killed := range []string{"the earlier release", "this release"} {
		t.Run(killed+" is killed", func(t *testing.T) {
			t.Parallel()
			o := servertest.Options{Database: storetest.Empty(t, storetest.Postgres).Database, MasterKeyFile: freshMasterKey(t)}
			var buyers []string
			for i := range 12 {
				buyers = append(buyers, fmt.Sprint("buyer ", i))
			}
			s := newTakeover(t, o, buyers...)
			old := s.serves(s.before)
			s.fuels()
			for i, name := range buyers {
				s.orders[name] = s.dollar(receiver(byte(i + 1)))
			}
			works(t, servertest.Program(t), servertest.Options{Database: o.Database, MasterKeyFile: o.MasterKeyFile}, "migrate", "--online")
			next := servertest.Start(t, s.o)
			var ordering sync.WaitGroup
			for i, name := range buyers {
				s.uses([]*servertest.Process{old, next}[i%2])
				b, plan := s.who(name), s.orders[name]
				var opts []client.OrderOption
				if i%3 == 0 {
					opts = append(opts, client.PaidBy(b.limit("usdc", 1000)))
				}
				ordering.Go(func() { _, _ = b.hasty.OrderPlan(t.Context(), plan, opts...) })
			}
			s.blocks(2)
			ordering.Wait()
			if killed == "this release" {
				next.Kill()
			} else {
				old.Kill()
			}
			s.finishes()
			for i, name := range buyers {
				n := s.count("SELECT COUNT(*) FROM orders WHERE plan_id = $1 AND status = 'final'", string(s.orders[name]))
				if r := receiver(byte(i + 1)); n != 1 || s.has(r, usdc) != 1_000_000 {
					t.Errorf("%s: %d orders are final, and %d units have arrived", name, n, s.has(r, usdc))
				}
			}
			old.Kill()
			next.Kill()
			auditAfter(t, servertest.Options{Database: o.Database})
		})
	}
}
