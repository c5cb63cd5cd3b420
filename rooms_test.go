package toll_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tollhq/toll"

// room says what the packages of one directory may import directly, besides the standard library.
type room struct {
	ours  string   // rooms of this module, by directory; "toll" is the root
	third []string // modules, or packages of modules, of others
	tests []string // the same, for test files only, besides testLibraries
}

// rooms is the table of docs/ARCHITECTURE.md. A directory that is not in it is a fault: say here what it may import.
var rooms = map[string]room{
	"toll": {tests: []string{"github.com/go-json-experiment/json", "golang.org/x/crypto/sha3"}},
	"x402": {ours: "toll", third: []string{"github.com/go-json-experiment/json"}},

	// evm signs and recovers what wallets sign off the chain.
	"evm": {ours: "toll x402", third: []string{"github.com/decred/dcrd/dcrec/secp256k1/v4"}},

	"client": {ours: "toll x402 internal/cache internal/backoff"},
	"paid":   {ours: "toll x402 internal/cache internal/sale internal/plain"},
	"paidmcp": {
		ours:  "toll x402 paid internal/cache internal/sale internal/plain internal/pace internal/meter",
		third: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/google/jsonschema-go"},
	},
	"paida2a":  {ours: "toll x402 paid internal/sale internal/plain internal/pace", third: []string{"github.com/a2aproject/a2a-go"}},
	"tolltest": {ours: "toll x402 client internal/checkout/railtest internal/server"},

	// What the middlewares share; public rooms link it, so it is as light as they are.
	"internal/sale":            {ours: "toll x402 internal/backoff"},
	"internal/backoff":         {},
	"internal/plain":           {},
	"internal/cache":           {},
	"internal/pace":            {},
	"internal/meter":           {ours: "toll"},
	"internal/gate":            {},
	"internal/tempfile":        {},
	"internal/rounds":          {}, // linked by tests alone
	"internal/seal":            {ours: "internal/tempfile"},
	"internal/store":           {ours: "toll internal/backoff", third: []string{"github.com/jackc/pgx/v5", "modernc.org/sqlite", "github.com/pressly/goose/v3"}},
	"internal/store/storetest": {ours: "toll internal/store", third: []string{"github.com/jackc/pgx/v5"}},
	"internal/backup":          {ours: "toll internal/tempfile internal/seal internal/store"},
	"internal/ledger":          {ours: "toll internal/store"},
	"internal/jobs":            {ours: "internal/backoff"},
	// secp256k1 makes the wallet key of a principal, whose address it has from the first moment.
	"internal/auth":     {ours: "toll internal/cache internal/seal internal/store internal/jobs", third: []string{"github.com/go-jose/go-jose/v4", "github.com/decred/dcrd/dcrec/secp256k1/v4"}},
	"internal/checkout": {ours: "toll evm internal/store internal/ledger internal/rail"},
	"internal/rail":     {ours: "toll internal/store"},
	// A rail for tests, which the program does not link.
	"internal/checkout/railtest": {ours: "toll evm internal/checkout"},
	"internal/chain": {
		ours:  "toll evm internal/store internal/chain/contracts internal/chain/userop internal/chain/signer internal/chain/endpoints",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/chain/contracts":          {third: []string{"github.com/ethereum/go-ethereum"}, tests: []string{"github.com/holiman/uint256"}},
	"internal/chain/contracts/generate": {third: []string{"github.com/ethereum/go-ethereum"}},
	// Made by the program in generate; tests of the chain compare with it what the rooms build by hand.
	"internal/chain/contracts/bindings": {third: []string{"github.com/ethereum/go-ethereum"}},
	"internal/chain/userop":             {ours: "evm internal/chain/contracts", third: []string{"github.com/ethereum/go-ethereum"}},
	"internal/chain/signer": {
		ours:  "toll evm internal/chain/contracts internal/chain/userop",
		third: []string{"github.com/ethereum/go-ethereum", "github.com/holiman/uint256", "github.com/decred/dcrd/dcrec/secp256k1/v4"},
	},
	"internal/chain/endpoints": {ours: "toll internal/backoff", third: []string{"github.com/ethereum/go-ethereum"}},
	// The embedded chain is the only room that runs a node.
	"internal/chain/devchain": {ours: "internal/chain/contracts internal/tempfile", third: []string{"github.com/ethereum/go-ethereum", "github.com/holiman/uint256"}},
	"internal/chain/chaintest": {
		ours:  "internal/chain/contracts internal/chain/contracts/bindings internal/chain/signer internal/chain/devchain",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/chain/mirror": {ours: "toll internal/chain/contracts internal/chain/endpoints internal/chain/signer", third: []string{"github.com/ethereum/go-ethereum"}},
	"internal/outbound":     {},
	"internal/events":       {ours: "toll x402 internal/store internal/ledger internal/jobs internal/outbound"},
	// schema checks values and schemas of strangers, in bounded work.
	"internal/schema":      {tests: []string{"github.com/google/jsonschema-go"}},
	"internal/facilitator": {ours: "toll x402 evm internal/cache internal/schema internal/meter internal/store internal/ledger internal/auth internal/checkout"},
	"internal/oauth":       {ours: "toll internal/meter internal/store internal/auth internal/facilitator internal/outbound"},
	"internal/web": {
		ours:  "toll x402 internal/meter internal/store internal/ledger internal/checkout internal/auth internal/oauth",
		third: []string{"github.com/alexedwards/scs/v2"},
	},
	"internal/api": {
		ours:  "toll x402 internal/gate internal/pace internal/meter internal/store internal/ledger internal/auth internal/facilitator internal/checkout internal/events",
		third: []string{"github.com/danielgtaylor/huma/v2"},
	},
	// crypto starts and reports the chain, and has what it remembers of its own: keys, the genesis, the mirror.
	"internal/crypto": {
		ours: "toll evm internal/seal internal/store internal/ledger internal/auth internal/checkout " +
			"internal/chain internal/chain/contracts internal/chain/signer internal/chain/endpoints internal/chain/devchain internal/chain/mirror",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/server": {
		ours: "toll x402 internal/tempfile internal/gate internal/seal internal/store internal/ledger internal/jobs internal/auth internal/facilitator internal/checkout " +
			"internal/api internal/backup internal/oauth internal/web internal/events internal/outbound internal/pace internal/chain internal/chain/userop internal/crypto",
		third: []string{"github.com/prometheus/client_golang", "github.com/ethereum/go-ethereum"},
		tests: []string{"github.com/jackc/pgx/v5", "golang.org/x/sys/unix", "github.com/holiman/uint256", "golang.org/x/oauth2"},
	},
	"internal/server/servertest": {ours: "toll client"},
	"internal/cli": {
		ours:  "toll x402 evm client paid paidmcp internal/tempfile internal/pace internal/crypto internal/server",
		third: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "charm.land/lipgloss/v2", "github.com/go-jose/go-jose/v4"},
		tests: []string{"github.com/modelcontextprotocol/go-sdk"},
	},
	"cmd/toll": {ours: "internal/cli"},

	// bench measures the program from outside, and some rooms from inside.
	"bench": {
		ours:  "toll x402 client paid internal/seal internal/store internal/ledger internal/auth internal/facilitator internal/checkout internal/crypto internal/server",
		third: []string{"github.com/HdrHistogram/hdrhistogram-go", "github.com/jackc/pgx/v5", "github.com/ethereum/go-ethereum"},
	},
	// Tests alone, which run the program and software of others as processes.
	"interop": {tests: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/a2aproject/a2a-go"}},
}

// testLibraries may be imported by the tests of any room.
var testLibraries = []string{
	"github.com/google/go-cmp", "github.com/rogpeppe/go-internal/testscript", "go.uber.org/goleak", "pgregory.net/rapid",
	"github.com/anishathalye/porcupine",
}

// testRooms hold what tests of other rooms use; only they and test files import "testing".
var testRooms = []string{"tolltest", "internal/store/storetest", "internal/server/servertest", "internal/chain/chaintest"}

// publicRooms are imported by other people, so their tests see what those see.
var publicRooms = []string{"toll", "x402", "evm", "client", "paid", "paidmcp", "paida2a", "tolltest"}

// rulesRooms decide about credits, money and access: their time comes from a clock that is given to them, and their
// numbers are exact.
var rulesRooms = []string{
	"toll", "x402", "evm", "internal/gate", "internal/seal", "internal/store", "internal/ledger", "internal/auth", "internal/checkout",
	"internal/rail", "internal/facilitator", "internal/oauth",
}

// strictRooms read messages of others, with the one strict decoder.
var strictRooms = []string{"x402", "client", "paid", "paidmcp", "paida2a", "internal/sale", "internal/facilitator"}

// sqlRooms hold all SQL. Tests and measurements may use it to look behind the rooms.
var sqlRooms = []string{"internal/store", "internal/store/storetest", "internal/ledger", "bench"}

// handleRooms call ledger.Do, which locks an account while their records are written with its credits. A room where callers wait
// for payments, for handlers or for peers is not one of them.
var handleRooms = []string{"internal/checkout", "internal/facilitator"}

// speakingRooms write to the terminal.
var speakingRooms = []string{"internal/cli", "cmd/toll", "bench", "internal/chain/contracts/generate"}

// skips are the tests that may be skipped, by file, with what is missing then. CI=true takes a skip for a failure.
var skips = map[string]string{
	"internal/store/storetest/storetest.go":              "a PostgreSQL",
	"internal/store/open_test.go":                        "a PostgreSQL",
	"internal/server/faults_test.go":                     "a shell with ulimit",
	"internal/server/operation_test.go":                  "a system that lists descriptors",
	"internal/server/readiness_test.go":                  "a file system that can be mounted, or a shell with ulimit",
	"internal/chain/contracts/generate/generate_test.go": "an npm registry",
	"internal/chain/chaintest/anvil.go":                  "an npm registry",
	"internal/chain/chaintest/chain.go":                  "nothing: it ran before, on the chain that it is about",
	"internal/server/whole_test.go":                      "nothing: an answer was lost, and rapid draws another sequence for that one",
	"interop/main_test.go":                               "node, or an npm registry",
	"interop/mcp_test.go":                                "a newer node from npm, for this processor",
}

func TestRooms(t *testing.T) {
	for _, f := range newHouse(module, rooms).check(t, ".") {
		t.Error(f)
	}
}

// TestRooms_Bad shows the checker a house that breaks every rule: the faults must be those that the comments there want.
func TestRooms_Bad(t *testing.T) {
	dir := filepath.Join("testdata", "rooms", "bad")
	bad := newHouse("example.org/bad", map[string]room{
		"toll":         {},
		"x402":         {ours: "toll"},
		"internal/api": {ours: "toll x402", third: []string{"example.com/allowed"}},
		"gone":         {},
	})
	bad.testLibraries = []string{"example.com/testing"}
	var got []string
	for _, f := range bad.check(t, dir) {
		got = append(got, f.String())
	}
	var want []string
	wanted := regexp.MustCompile("// want `([^`]*)`")
	for _, file := range goFiles(t, dir) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range wanted.FindAllStringSubmatch(line, -1) {
				want = append(want, file+":"+strconv.Itoa(i+1)+": "+m[1])
			}
		}
	}
	want = append(want, "gone:0: no such room: strike it from the table")
	slices.Sort(got)
	slices.Sort(want)
	for _, f := range got {
		if !slices.Contains(want, f) {
			t.Errorf("not wanted: %s", f)
		}
	}
	for _, f := range want {
		if !slices.Contains(got, f) {
			t.Errorf("not found: %s", f)
		}
	}
}

// linked returns which of the heavy packages a program links that imports the given ones.
func linked(t *testing.T, packages ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var heavy []string
	for _, p := range strings.Fields(string(out)) {
		inside := strings.HasPrefix(p, module+"/internal/") && p != module+"/internal/sale" && p != module+"/internal/plain" && p != module+"/internal/cache" &&
			p != module+"/internal/backoff"
		if !within(p, module) && !within(p, "github.com/go-json-experiment/json") || inside {
			heavy = append(heavy, p)
		}
	}
	return heavy
}

// Agent builders link the public rooms: nothing but the standard library and the JSON decoder comes with them.
func TestRooms_PublicRoomsAreLight(t *testing.T) {
	if heavy := linked(t, ".", "./x402", "./client", "./paid"); len(heavy) > 0 {
		t.Errorf("x402, client and paid link %s", strings.Join(heavy, ", "))
	}
	heavy := linked(t, "./internal/server")
	for _, p := range []string{"github.com/jackc/pgx/v5", "modernc.org/sqlite", "github.com/danielgtaylor/huma/v2", module + "/internal/store"} {
		if !slices.Contains(heavy, p) {
			t.Errorf("the check does not see that internal/server links %s", p)
		}
	}
}
