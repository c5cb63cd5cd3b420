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

	"github.com/tollhq/toll/internal/must"
)

const module = "github.com/tollhq/toll"

// room describes the packages of one directory and lists what they may import besides the standard library.
type room struct {
	what  string   // contents, in a few words
	layer string   // one of layers
	ours  string   // rooms of this module, by directory; "toll" is the root
	third []string // third-party modules, or packages of them
	tests []string // the same, for test files only, besides testLibraries
}

// rooms are all directories with Go files; one that is missing here is a fault. docs/ROOMS.md is made of it, by
//
//	go test . -run TestDocs_Rooms -update
var rooms = map[string]room{
	"toll": {
		what:  "agents, plans, prices, credits, permissions, receipts, codes of errors; `doc.go` is the tour",
		layer: "public",
		tests: []string{"github.com/go-json-experiment/json", "golang.org/x/crypto/sha3"},
	},
	"x402": {
		what:  "types of the protocol, strict JSON, access tokens in three forms, brand words, the seam",
		layer: "public",
		ours:  "toll",
		third: []string{"github.com/go-json-experiment/json"},
	},

	// evm signs and recovers what wallets sign off the chain.
	"sdk": {
		what:  "the packages of the SDKs for TypeScript and Python, which the service serves, and the commands that install an SDK",
		layer: "public",
	},
	"evm": {
		what:  "what wallets sign off the chain: authorizations of tokens, texts; strict recovery",
		layer: "public",
		ours:  "toll x402",
		third: []string{"github.com/decred/dcrd/dcrec/secp256k1/v4"},
	},

	"client": {
		what:  "Go SDK over HTTP",
		layer: "public",
		ours:  "toll x402 internal/cache internal/backoff",
	},
	"paid": {
		what:  "middleware: verify with hold, run, settle, answer; the reverse proxy",
		layer: "public",
		ours:  "toll x402 internal/cache internal/seller internal/plain",
	},
	"paidmcp": {
		what:  "prices on the tools, resources and prompts of an MCP server; the managed server over HTTP",
		layer: "public",
		ours: "toll x402 paid internal/cache internal/seller internal/plain internal/pace " +
			"internal/meter internal/oauthmeta internal/mcpwire",
		third: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/google/jsonschema-go", "golang.org/x/sync/semaphore"},
	},
	"internal/mcpwire": {
		what:  "what the priced MCP server and the proxy both know of MCP: eras, callers, spellings of a URI",
		layer: "public",
	},
	"internal/mcpproxy": {
		what:  "the MCP server of somebody else behind `toll mcp`: a process or a URL, its items, its restarts",
		layer: "public",
		ours:  "x402 paidmcp internal/cache internal/plain internal/mcpwire",
		third: []string{"github.com/modelcontextprotocol/go-sdk"},
	},
	"paida2a": {
		what:  "a price on an agent of A2A: tasks that are paid by x402 messages",
		layer: "public",
		ours:  "toll x402 paid internal/seller internal/plain internal/pace",
		third: []string{"github.com/a2aproject/a2a-go"},
	},
	"gateway": {
		what:  "the core of the chat gateway: tools, confirmations, login, context, paid endpoint, MCP",
		layer: "public",
		ours: "toll x402 client paid internal/backoff internal/cache internal/check internal/outbound internal/pace " +
			"internal/plain internal/seal internal/tempfile",
		third: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/google/jsonschema-go"},
	},
	"tolltest": {
		what:  "a whole service inside a test",
		layer: "public",
		ours:  "toll x402 client internal/rail internal/checkout/railtest internal/server internal/store/storetest",
	},

	// What the middlewares share; public rooms link it, so it is as light as they are.
	"internal/seller": {
		what:  "the seller's side of a paid call, whatever carries it: verify with hold, classes of refusals, settle, release, settle later, terms of plans",
		layer: "public",
		ours:  "toll x402 internal/backoff internal/cache",
	},
	"internal/check": {
		what:  "findings of the doctors",
		layer: "public",
	},
	"internal/backoff": {
		what:  "how long to wait before another try",
		layer: "public",
	},
	"internal/oauthmeta": {
		what:  "the documents of an authorization server and of what it protects",
		layer: "public",
	},
	"internal/plain": {
		what:  "text that others chose as one plain line, and names that others chose",
		layer: "public",
	},
	"internal/gzipped": {
		what:  "texts in gzip, and who takes them",
		layer: "public",
	},
	"internal/cache": {
		what:  "values for a time, in bounded memory",
		layer: "public",
	},
	"internal/pace": {
		what:  "connections of peers that send or read too slowly end; the address of a caller",
		layer: "public",
	},
	"internal/meter": {
		what:  "how often each of many callers does something",
		layer: "public",
		ours:  "toll",
	},
	"internal/rates": {
		what:  "prices by usage: tables of rates, the largest price of a call, the price of reported usage",
		layer: "public",
		ours:  "toll x402",
		third: []string{"github.com/go-json-experiment/json"},
	},
	"internal/modelapi": {
		what:  "the HTTP APIs of model servers: requests that can be sold by usage, and the usage of their responses",
		layer: "public",
		ours:  "toll",
		third: []string{"github.com/go-json-experiment/json"},
	},
	"internal/gate": {
		what:  "the gate of a configuration file: upstreams, routes with prices by usage, meters, streams",
		layer: "public",
		ours:  "toll x402 evm paid internal/cache internal/meter internal/modelapi internal/rates internal/seller",
		third: []string{"github.com/prometheus/client_golang", "go.yaml.in/yaml/v3"},
		tests: []string{"github.com/google/jsonschema-go"},
	},
	"internal/apiversion": {
		what:  "API versions: which one applies, changes of JSON between them",
		layer: "public",
	},
	"internal/tempfile": {
		what:  "temporary files that are removed after a process was killed",
		layer: "public",
	},
	// linked by tests alone
	"internal/must": {
		what:  "ends a test on an unexpected error",
		layer: "lab",
	},
	"internal/store/rounds": {
		what:  "how long the long tests run (`make test`, `make test-all`)",
		layer: "lab",
	},
	"internal/traces": {
		what:  "the id of a request in its context and in the log; spans of work and of calls, and their exporter to an OpenTelemetry collector",
		layer: "public",
		ours:  "internal/backoff internal/plain",
		third: []string{"go.opentelemetry.io/otel"},
	},
	"internal/alarm": {
		what:  "ids of alarms, their lines in the log, and the counter of them",
		layer: "public",
	},
	"internal/seal": {
		what:  "secrets at rest: master key, envelopes",
		layer: "books",
		ours:  "internal/tempfile",
	},
	"internal/store": {
		what:  "migrations, records, transactions, errors of both engines",
		layer: "books",
		ours:  "toll x402 internal/backoff",
		third: []string{"github.com/jackc/pgx/v5", "modernc.org/sqlite", "modernc.org/libc", "github.com/pressly/goose/v3", "github.com/gofrs/flock"},
	},
	"internal/store/storetest": {
		what:  "databases for tests, the lock order of their transactions, commits whose answer is lost",
		layer: "lab",
		ours:  "toll internal/must internal/store",
		third: []string{"github.com/jackc/pgx/v5"},
	},
	"internal/backup": {
		what:  "the embedded database in one sealed file, and back; folders and buckets that keep them, in time",
		layer: "books",
		ours:  "toll internal/tempfile internal/seal internal/store internal/backoff",
		third: []string{"github.com/minio/minio-go/v7"},
		tests: []string{"github.com/rclone/gofakes3"},
	},
	"internal/ledger": {
		what:  "accounts, lots, holds, entries, requests, permissions; the writer",
		layer: "books",
		ours:  "toll internal/backoff internal/store",
		tests: []string{"github.com/jackc/pgx/v5"},
	},
	"internal/jobs": {
		what:  "work in the background: supervised loops, one shutdown, the queue of rare due work",
		layer: "books",
		ours:  "internal/backoff internal/store internal/traces",
		tests: []string{"go.opentelemetry.io/otel"},
	},
	// secp256k1 makes the wallet key of a principal, whose address it has from the first moment.
	"internal/auth": {
		what:  "principals, API keys, access tokens, first start",
		layer: "decisions",
		ours:  "toll internal/cache internal/seal internal/store internal/jobs",
		third: []string{"github.com/go-jose/go-jose/v4", "github.com/decred/dcrd/dcrec/secp256k1/v4"},
	},
	"internal/checkout": {
		what:  "orders, top-ups, refunds, delegations, payment methods, mint, balance; the edge to money",
		layer: "decisions",
		ours:  "toll evm internal/backoff internal/store internal/ledger internal/jobs internal/outbound internal/rail internal/traces",
	},
	"internal/rail": {
		what:  "types that checkout and the rails share: what a rail pays, and how it decides orders",
		layer: "rails",
		ours:  "toll evm internal/store",
	},
	// A rail for tests, which the program does not link.
	"internal/checkout/railtest": {
		what:  "a rail for tests that behaves as one for cards: pages, declines, late decisions, refunds, disputes; money of wallets",
		layer: "lab",
		ours:  "toll evm internal/store internal/rail",
	},
	"internal/chain": {
		what:  "the crypto rail: orders, simulation, relayers, the tracker that follows the chain; its records",
		layer: "rails",
		ours: "toll evm internal/backoff internal/store internal/jobs internal/rail internal/chain/contracts internal/chain/userop internal/alarm " +
			"internal/chain/signer internal/chain/endpoints",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/chain/contracts": {
		what:  "addresses and code of the contracts, and whether a chain has them",
		layer: "rails",
		ours:  "toll",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/chain/contracts/generate": {
		what:  "the program that makes them from pinned packages, run by hand",
		layer: "rails",
		ours:  "internal/chain/contracts",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/chain/userop": {
		what:  "operations, calldata, hashes, delegations: pure functions",
		layer: "rails",
		ours:  "toll evm internal/chain/contracts",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/chain/signer": {
		what:  "typed requests, refusals, the hourly cap; nobody else sees a key of an account",
		layer: "rails",
		ours:  "toll evm internal/chain/contracts internal/chain/userop internal/alarm",
		third: []string{
			"github.com/ethereum/go-ethereum",
			"github.com/holiman/uint256",
			"github.com/decred/dcrd/dcrec/secp256k1/v4",
		},
	},
	"internal/chain/endpoints": {
		what:  "JSON-RPC endpoints, their health and their agreement",
		layer: "rails",
		ours:  "toll internal/backoff internal/jobs internal/traces",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	// Only this room runs blocks and the EVM.
	"internal/chain/devchain": {
		what:  "the embedded chain and its JSON-RPC methods; only this room runs the EVM",
		layer: "rails",
		ours:  "internal/chain/contracts internal/tempfile",
		third: []string{"github.com/ethereum/go-ethereum", "github.com/holiman/uint256", "github.com/gofrs/flock"},
	},
	"internal/chain/chaintest": {
		what:  "chains, keys, a lying endpoint, for tests; tests of contracts, userop, signer, mirror, and endpoints on a chain",
		layer: "lab",
		ours:  "internal/must internal/chain/contracts internal/chain/signer internal/chain/devchain",
		third: []string{"github.com/ethereum/go-ethereum"},
		tests: []string{"github.com/holiman/uint256"},
	},
	"internal/chain/mirror": {
		what:  "burned credits as a Merkle tree per period: publisher, and the check of a proof",
		layer: "rails",
		ours:  "toll internal/store internal/jobs internal/chain/contracts internal/chain/endpoints internal/chain/signer",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/card": {
		what:  "the card rail: customers, cards, pages, charges, refunds, disputes, events; it alone speaks to Stripe",
		layer: "rails",
		ours:  "toll internal/store internal/jobs internal/rail internal/plain internal/alarm",
		third: []string{"github.com/stripe/stripe-go/v85"},
		tests: []string{"github.com/stripe/stripe-mock"},
	},
	// Of its lines about 800 are the objects of Stripe, member by member.
	"internal/card/double": {
		what:  "a stateful double of Stripe over HTTP: test cards, pages, webhooks, faults, books",
		layer: "lab",
		ours:  "toll internal/tempfile",
		tests: []string{"github.com/stripe/stripe-go/v85", "github.com/stripe/stripe-mock"},
	},
	"internal/outbound": {
		what:  "requests to addresses that others chose: checked, pinned, bounded",
		layer: "public",
	},
	"internal/events": {
		what:  "events of entries, lists and live streams, webhooks and their delivery, mails",
		layer: "decisions",
		ours:  "toll x402 internal/plain internal/store internal/ledger internal/jobs internal/outbound",
	},
	// schema checks values and schemas of strangers, in bounded work.
	"internal/schema": {
		what:  "JSON Schemas of strangers, checked in bounded work",
		layer: "public",
		tests: []string{"github.com/google/jsonschema-go"},
	},
	"internal/recent": {
		what:  "values that were read a moment ago, with one read for several callers",
		layer: "decisions",
		ours:  "internal/cache",
	},
	"internal/refusal": {
		what:  "refusals of payments: codes, and reason words of x402",
		layer: "decisions",
		ours:  "toll x402 internal/ledger",
	},
	"internal/catalogue": {
		what:  "plans and agents as payments are checked against them, and the public list of what can be bought",
		layer: "decisions",
		ours:  "toll x402 internal/schema internal/store internal/recent",
	},
	"internal/tokens": {
		what:  "permissions and their access tokens: create, renew, list, revoke; accounts and permissions as they were a moment ago",
		layer: "decisions",
		ours: "toll x402 internal/meter internal/store internal/ledger internal/auth internal/checkout " +
			"internal/recent internal/refusal internal/catalogue",
	},
	"internal/purchases": {
		what:  "plans bought by wallets, wallets that sign in, offers and receipts, payments of wallets to servers of builders",
		layer: "decisions",
		ours: "toll x402 evm internal/store internal/auth internal/rail internal/checkout " +
			"internal/refusal internal/catalogue internal/tokens",
	},
	"internal/pay": {
		what:  "verify, settle, release in both bodies, top-ups on the way, requests and their sub-tasks",
		layer: "decisions",
		ours: "toll x402 internal/meter internal/store internal/ledger internal/auth internal/checkout " +
			"internal/refusal internal/catalogue internal/tokens internal/purchases",
	},
	"internal/oauth": {
		what:  "the authorization server: clients, consents, codes, devices, refresh tokens, documents",
		layer: "doors",
		ours: "toll internal/meter internal/store internal/auth internal/tokens " +
			"internal/oauthmeta internal/outbound",
	},
	"internal/people": {
		what:  "persons, their credentials and roles in workspaces, invitations, recovery",
		layer: "decisions",
		ours:  "toll x402 evm internal/plain internal/meter internal/store internal/auth internal/jobs internal/traces",
		third: []string{"golang.org/x/crypto", "github.com/go-webauthn/webauthn", "github.com/wneessen/go-mail", "github.com/coreos/go-oidc/v3", "golang.org/x/oauth2"},
	},
	"internal/records": {
		what:  "what pages outside a workspace show and the API has no route for: offers, connected programs, linked orders, burns",
		layer: "doors",
		ours:  "toll x402 internal/store internal/ledger internal/checkout internal/catalogue internal/auth internal/oauth internal/rail",
	},
	"internal/web": {
		what:  "pages for people: composes the packages of pages",
		layer: "doors",
		ours: "internal/outbound internal/people internal/records internal/web/operator internal/web/page internal/web/public " +
			"internal/web/session internal/web/signin internal/web/workspace",
	},
	"internal/web/signin": {
		what:  "pages of persons and consents: sign-in, sign-up, credentials, programs, devices",
		layer: "doors",
		ours: "toll internal/auth internal/oauth internal/list internal/people internal/plain internal/records internal/web/offer internal/web/page " +
			"internal/web/session internal/web/workspace",
	},
	"internal/web/public": {
		what:  "pages for everybody: catalogue, agents, plans, receipts, orders by signed links, cards",
		layer: "doors",
		ours: "toll x402 sdk internal/auth internal/meter internal/list internal/plain internal/rail internal/records internal/web/offer internal/web/page " +
			"internal/web/session",
	},
	"internal/web/offer": {
		what:  "what a plan is for the workspace that looks at it, and how the workspace orders it",
		layer: "doors",
		ours:  "toll client internal/plain internal/web/page",
	},
	"internal/web/workspace": {
		what:  "pages of a workspace: overview, agents, plans, orders, usage, keys, webhooks, members, money, calls of agents",
		layer: "doors",
		ours: "toll x402 client internal/auth internal/cache internal/meter internal/outbound internal/people internal/list internal/plain internal/web/offer internal/web/page " +
			"internal/web/session",
	},
	"internal/web/operator": {
		what:  "pages for operators: health, background work, keys, limits, backups, all workspaces",
		layer: "doors",
		ours:  "toll internal/check internal/people internal/plain internal/web/page",
	},
	"internal/web/page": {
		what:  "toolkit of pages: context of a request, views, errors, frame, forms, tables, charts, formats",
		layer: "doors",
		ours:  "toll x402 client sdk paid internal/auth internal/cache internal/gzipped internal/list internal/plain internal/web/session",
	},
	"internal/web/session": {
		what:  "sessions of browsers, tickets of forms, and acts that run once",
		layer: "doors",
		ours:  "toll internal/auth internal/meter internal/people internal/plain internal/store",
		third: []string{"github.com/alexedwards/scs/v2"},
	},
	"internal/list": {
		what:  "each list of the API once: route, member, columns and their kinds, for the API, the command line and pages",
		layer: "doors",
		ours:  "toll",
	},
	"internal/api": {
		what:  "the table of routes, errors, messages, OpenAPI, pages about the API",
		layer: "doors",
		ours: "toll x402 internal/apiversion internal/pace internal/meter internal/store internal/ledger internal/traces " +
			"internal/auth internal/catalogue internal/tokens internal/purchases internal/pay internal/checkout internal/events internal/people internal/plain internal/gzipped internal/list docs",
		third: []string{"github.com/danielgtaylor/huma/v2"},
		tests: []string{"github.com/google/jsonschema-go"},
	},
	"internal/rails": {
		what:  "starts, checks, and reports the chain and the card processor: settings, keys, doctor, payments without an order, payouts",
		layer: "rails",
		ours: "toll evm internal/check internal/seal internal/store internal/ledger internal/jobs internal/auth internal/traces " +
			"internal/rail internal/chain internal/chain/contracts internal/chain/signer " +
			"internal/chain/endpoints internal/chain/devchain internal/chain/mirror internal/card internal/card/double",
		third: []string{"github.com/ethereum/go-ethereum"},
	},
	"internal/metrics": {
		what:  "what an operator watches: counts of requests, of background work, of the database",
		layer: "outside",
		ours:  "toll internal/store internal/ledger internal/jobs internal/api internal/alarm",
		third: []string{"github.com/prometheus/client_golang"},
	},
	"internal/server": {
		what:  "composition, start and shutdown, the opening of a database; it alone knows all rooms",
		layer: "outside",
		ours: "toll x402 internal/tempfile internal/apiversion internal/check internal/seal internal/store internal/alarm internal/traces " +
			"internal/ledger internal/jobs internal/auth internal/catalogue internal/tokens internal/purchases internal/pay internal/checkout " +
			"internal/api internal/backup internal/oauth internal/records internal/web internal/web/operator internal/web/page internal/web/public internal/web/session internal/web/workspace internal/events " +
			"internal/outbound internal/pace internal/metrics internal/rails internal/people sdk",
		third: []string{"golang.org/x/sys/unix", "go.opentelemetry.io/otel"}, // the filter of a listener that ends
		tests: []string{
			"github.com/go-jose/go-jose/v4", "github.com/jackc/pgx/v5",
			"github.com/holiman/uint256", "github.com/rclone/gofakes3",
			"golang.org/x/oauth2", "github.com/modelcontextprotocol/go-sdk",
			"github.com/ethereum/go-ethereum",
		},
	},
	"internal/admin": {
		what:  "work on a database from the shell, beside a running service or without one: audit, recovery, payouts, keys, people",
		layer: "outside",
		ours: "toll internal/tempfile internal/seal internal/store internal/ledger internal/jobs internal/auth internal/card internal/checkout internal/api " +
			"internal/web/session internal/events internal/rails internal/people internal/server",
	},
	"internal/server/servertest": {
		what:  "the program as a process, for tests that kill it",
		layer: "lab",
		ours:  "toll client internal/must",
	},
	"internal/cli": {
		what:  "the commands; they talk through the client, except serve, dev and local administration",
		layer: "outside",
		ours: "toll x402 evm client paid paidmcp gateway internal/list internal/check internal/tempfile internal/pace internal/plain internal/jobs " +
			"internal/rails internal/card/double internal/gate internal/mcpproxy internal/admin internal/server",
		third: []string{
			"github.com/ethereum/go-ethereum",
			"github.com/go-jose/go-jose/v4",
			"github.com/gofrs/flock",
			"github.com/spf13/cobra",
			"github.com/spf13/pflag",
			"charm.land/lipgloss/v2",
		},
		tests: []string{"github.com/modelcontextprotocol/go-sdk"},
	},
	"cmd/toll": {
		what:  "`main`",
		layer: "outside",
		ours:  "internal/cli",
	},

	// bench measures the program from outside, and some rooms from inside.
	"bench": {
		what:  "measurements side by side",
		layer: "lab",
		ours: "toll x402 client paid internal/seal internal/store internal/ledger internal/auth " +
			"internal/pay internal/checkout internal/rails internal/server",
		third: []string{
			"github.com/HdrHistogram/hdrhistogram-go",
			"github.com/jackc/pgx/v5",
			"github.com/ethereum/go-ethereum",
			"golang.org/x/sync/errgroup",
		},
	},
	// Tests alone, which run the program and software of others as processes.
	"docs": {
		what:  "the guides of this directory, as the service shows them",
		layer: "public",
		third: []string{"github.com/yuin/goldmark"},
	},
	"interop": {
		what:  "the program against software of others: tests alone, with packages of npm",
		layer: "lab",
		tests: []string{"github.com/modelcontextprotocol/go-sdk", "github.com/a2aproject/a2a-go", "github.com/ethereum/go-ethereum"},
	},
}

// testLibraries may be imported by the tests of any room.
var testLibraries = []string{
	"github.com/google/go-cmp", "github.com/rogpeppe/go-internal/testscript", "go.uber.org/goleak", "pgregory.net/rapid",
	"github.com/anishathalye/porcupine",
}

// testRooms hold what tests of other rooms use; only they and test files import "testing".
var testRooms = []string{"tolltest", "internal/store/storetest", "internal/server/servertest", "internal/chain/chaintest"}

// isPublic reports whether builders import a room. Its tests see only what builders see.
func isPublic(room string) bool {
	return rooms[room].layer == "public" && room != "docs" && !strings.HasPrefix(room, "internal/")
}

// rulesRooms decide about credits, money and access: their time comes from a clock that is given to them, and their
// numbers are exact.
var rulesRooms = []string{
	"toll", "x402", "evm", "internal/apiversion", "internal/seal", "internal/store", "internal/ledger", "internal/auth", "internal/checkout",
	"internal/rail", "internal/catalogue", "internal/recent", "internal/refusal", "internal/tokens", "internal/purchases", "internal/pay", "internal/oauth", "internal/card/double",
	"internal/rates",
}

// strictRooms read messages of others, with the one strict decoder.
var strictRooms = []string{"x402", "client", "paid", "paidmcp", "paida2a", "gateway", "internal/seller", "internal/catalogue", "internal/tokens", "internal/purchases", "internal/pay"}

// sqlRooms hold all SQL. Tests and measurements may use it to look behind the rooms.
var sqlRooms = []string{"internal/store", "internal/store/storetest", "internal/ledger", "bench"}

// handleRooms call ledger.Do, which locks an account while their records are written with its credits. A room where callers wait
// for payments, for handlers or for peers is not one of them.
var handleRooms = []string{"internal/checkout"}

// speakingRooms write to the terminal.
var speakingRooms = []string{"internal/cli", "cmd/toll", "bench", "internal/chain/contracts/generate"}

// skips are the tests that may be skipped, by file, with what is missing then. CI=true takes a skip for a failure.
var skips = map[string]string{
	"internal/store/storetest/storetest.go":              "a PostgreSQL",
	"internal/store/open_test.go":                        "a PostgreSQL",
	"internal/server/faults_test.go":                     "a shell with ulimit",
	"internal/server/deploy_test.go":                     "nginx, caddy or systemd-analyze of Debian, in make test-all",
	"internal/server/machine_test.go":                    "root, and a system with cgroup2, in make test-all",
	"internal/server/operation_test.go":                  "a system that lists descriptors",
	"internal/server/readonly_test.go":                   "root, and a loop device for an ext4",
	"internal/server/readiness_test.go":                  "a file system that can be mounted, or a shell with ulimit",
	"internal/chain/contracts/generate/generate_test.go": "an npm registry",
	"internal/chain/chaintest/anvil.go":                  "an npm registry",
	"internal/chain/chaintest/chain.go":                  "nothing: it ran before, on the chain that it is about",
	"internal/server/whole_test.go":                      "nothing: an answer was lost, and rapid draws another sequence for that one",
	"interop/main_test.go":                               "node, or an npm registry",
	"interop/browser_test.go":                            "chromium",
	"interop/mcp_test.go":                                "a newer node from npm, for this processor",
	"interop/python_test.go":                             "Python, or a package of Debian for it",
	"interop/proxy_test.go":                              "nginx or caddy of Debian, in make test-all",
}

// goroutines are the files outside of internal/jobs that start goroutines or have tickers, with what for. What goes on in the
// background of the service is a [jobs.Loop], so that one shutdown ends it, and the operator sees it.
var goroutines = map[string]string{
	"internal/server/serve.go":              "listeners",
	"internal/server/inspect.go":            "checks of other systems, side by side, with one deadline",
	"internal/server/operation.go":          "backups of one page, beside its checks",
	"internal/people/mail.go":               "the deadline of one dialogue",
	"internal/cli/log.go":                   "the end of a second in which lines were repeated",
	"internal/cli/serve.go":                 "listeners",
	"internal/cli/dev.go":                   "listeners",
	"internal/cli/login.go":                 "the listener of one sign-in",
	"internal/cli/gate_config.go":           "listeners, and the signal to reload",
	"internal/gate/transport.go":            "the time limits of one response",
	"internal/cli/mcp.go":                   "the signal to reload",
	"internal/cli/plans_create.go":          "one read of a terminal, which does not end with its context",
	"internal/pace/unread.go":               "the time of one connection",
	"internal/ledger/ledger.go":             "the writer: it has requests of callers and no turns",
	"internal/ledger/audit_journal.go":      "pages and accounts of one audit",
	"internal/ledger/lists.go":              "accounts of one page that a caller waits for",
	"internal/ledger/reads.go":              "parallel reads of one call",
	"internal/events/deliver.go":            "slots of receivers, whom their loop waits for",
	"internal/recent/recent.go":             "one read for several callers",
	"internal/tokens/keys.go":               "access tokens of one API key, which a caller waits for",
	"internal/checkout/checkout.go":         "a wait with a deadline",
	"internal/chain/simulate.go":            "parallel reads of one call",
	"internal/chain/endpoints/head.go":      "parallel reads of one call",
	"internal/chain/endpoints/send.go":      "parallel sends of one call",
	"internal/chain/endpoints/endpoints.go": "parallel checks of one turn",
	"internal/chain/devchain/mine.go":       "the embedded chain, which stands for a network",
	"internal/chain/devchain/serve.go":      "the listener of the embedded chain",
	"internal/chain/devchain/logs.go":       "one subscription",
	"internal/card/double/double.go":        "webhooks of the double, which stands for a service of others",

	// In the programs of builders, which have no jobs.
	"gateway/login.go":              "one login, which a person decides",
	"gateway/handlers.go":           "one agent handler, which may ignore its time-out",
	"internal/seller/queue.go":      "settlements that are repeated later",
	"client/events.go":              "the silence of one stream",
	"internal/seller/keep.go":       "the end of one hold",
	"internal/seller/pulse.go":      "the pulse of one stream",
	"paid/writer.go":                "the pulse of one stream",
	"paidmcp/server.go":             "listeners",
	"paidmcp/session.go":            "one session",
	"paidmcp/backlog.go":            "one session",
	"paidmcp/bearer_keys.go":        "one reading of keys, for which callers wait",
	"internal/mcpproxy/proxy.go":    "one session",
	"internal/mcpproxy/items.go":    "what a server behind the proxy offers",
	"internal/mcpproxy/process.go":  "the end of one process",
	"internal/mcpproxy/progress.go": "the progress of one call",
	"paida2a/work.go":               "one task",
	"paida2a/send.go":               "one task",
}

func TestRooms(t *testing.T) {
	for _, f := range newHouse(module, rooms).check(t, ".") {
		t.Error(f)
	}
	for _, exceptions := range []map[string]string{goroutines, skips} {
		for name := range exceptions {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("an exception for a file that does not exist: %v", err)
			}
		}
	}
}

// TestRooms_Bad shows the checker a house that breaks every rule: the faults must be those that the comments there want.
func TestRooms_Bad(t *testing.T) {
	dir := filepath.Join("testdata", "rooms", "bad")
	bad := newHouse("example.org/bad", map[string]room{
		"toll":                {layer: "public"},
		"x402":                {ours: "toll"},
		"internal/api":        {layer: "doors", ours: "toll x402", third: []string{"example.com/allowed"}},
		"internal/chain/deep": {layer: "rails"},
		"internal/server":     {layer: "outside", ours: "internal/chain/deep"},
		"gone":                {layer: "lab"},
	})
	bad.longest = 9
	bad.testLibraries = []string{"example.com/testing"}
	var got []string
	for _, f := range bad.check(t, dir) {
		got = append(got, f.String())
	}
	var want []string
	wanted := regexp.MustCompile("// want `([^`]*)`")
	for _, file := range goFiles(t, dir) {
		text := must.Get(os.ReadFile(filepath.Join(dir, file)))(t)
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range wanted.FindAllStringSubmatch(line, -1) {
				want = append(want, file+":"+strconv.Itoa(i+1)+": "+m[1])
			}
		}
	}
	want = append(want, "gone:0: no such room: strike it from the table",
		"x402:0: a room without a layer",
		"internal/server/server.go:0: 10 lines, and 9 are the most of a file here")
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
	must.Do(t, err)
	var heavy []string
	for _, p := range strings.Fields(string(out)) {
		inside := strings.HasPrefix(p, module+"/internal/") && p != module+"/internal/seller" && p != module+"/internal/plain" && p != module+"/internal/cache" &&
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

// The embedded chain takes most of the size of a test binary that links it. Tests of these rooms that need a chain are in chaintest.
func TestRooms_OneChain(t *testing.T) {
	const chain = module + "/internal/chain/"
	links := func(room string) bool {
		out := must.Get(exec.Command("go", "list", "-test", "-deps", chain+room).Output())(t)
		return slices.Contains(strings.Fields(string(out)), chain+"devchain")
	}
	for _, room := range []string{"contracts", "userop", "signer", "mirror", "endpoints"} {
		if links(room) {
			t.Errorf("the tests of internal/chain/%s link the embedded chain: move the tests with a chain to internal/chain/chaintest", room)
		}
	}
	if !links("chaintest") {
		t.Error("the check does not see that the tests of chaintest link the embedded chain")
	}
}

// upward lists the only imports of a layer above, and of inner rooms by public packages.
var upward = map[string]string{
	"internal/rails": "internal/auth",                 // wallets of workspaces and the operator's keys
	"gateway":        "internal/seal",                 // a stored login is encrypted
	"tolltest":       "internal/rail internal/server", // it starts a complete service
}

// TestLayers checks that each room imports only rooms of its layer, of the layers below it, and leaves.
func TestLayers(t *testing.T) {
	order := []string{"outside", "doors", "decisions", "rails", "books", "public"}
	for name, r := range rooms {
		at := slices.Index(order, r.layer)
		for _, other := range strings.Fields(r.ours) {
			to := slices.Index(order, rooms[other].layer)
			if to >= 0 && to < at && !slices.Contains(strings.Fields(upward[name]), other) {
				t.Errorf("%s (%s) imports %s (%s)", name, r.layer, other, rooms[other].layer)
			}
		}
	}
}
