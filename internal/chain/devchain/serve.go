//go:build !nodevchain

package devchain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"
)

// Bounds of one HTTP message, whose body the library bounds to 5 MiB, and of the time that Close gives to running calls.
const (
	maxBatch       = 1000
	maxBatchAnswer = 25_000_000 // bytes
	closeWait      = 10 * time.Second
)

// serve starts the JSON-RPC server, in process and, if an address is set, over HTTP.
func serve(c *Chain) error {
	server := rpc.NewServer()
	server.SetBatchLimits(maxBatch, maxBatchAnswer)
	blocks := &blockAPI{c}
	for _, api := range []struct {
		namespace string
		service   any
	}{
		{"eth", blocks},
		{"eth", &sendAPI{c}},
		{"eth", &trialAPI{blocks}},
		{"eth", &feeAPI{blocks}},
		{"eth", &logAPI{blocks: blocks, filters: map[rpc.ID]*filter{}}},
		{"net", &netAPI{c}},
		{"web3", web3API{}},
	} {
		if err := server.RegisterName(api.namespace, api.service); err != nil {
			return err
		}
	}
	c.client = rpc.DialInProc(server)
	c.closers = append(c.closers, func() error { server.Stop(); return nil }, func() error { c.client.Close(); return nil })
	if c.cfg.HTTP == "" {
		return nil
	}
	if address, err := netip.ParseAddrPort(c.cfg.HTTP); err != nil || !address.Addr().IsLoopback() {
		return fmt.Errorf("%q is not a loopback IP address with a port", c.cfg.HTTP)
	}
	listener, err := net.Listen("tcp", c.cfg.HTTP)
	if err != nil {
		return err
	}
	c.url = "http://" + listener.Addr().String()
	limits := rpc.DefaultHTTPTimeouts
	web := &http.Server{
		Handler: ownHost(server), ReadTimeout: limits.ReadTimeout, ReadHeaderTimeout: limits.ReadHeaderTimeout,
		WriteTimeout: limits.WriteTimeout, IdleTimeout: limits.IdleTimeout, ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelWarn),
	}
	calls, cancel := context.WithCancel(context.Background())
	web.BaseContext = func(net.Listener) context.Context { return calls }
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.log.Error("the embedded chain is not served over HTTP", "error", err)
		}
	}()
	c.closers = append(c.closers, func() error {
		cancel() // calls end soon, and must end before the database closes
		wait, stop := context.WithTimeout(context.Background(), closeWait)
		defer stop()
		err := errors.Join(web.Shutdown(wait), web.Close())
		<-served
		return err
	})
	return nil
}

// ownHost refuses requests with a host name other than localhost: a page whose name resolves to loopback must not reach the chain.
func ownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host // it has no port
		}
		if host != "" && net.ParseIP(host) == nil && !strings.EqualFold(host, "localhost") {
			http.Error(w, "invalid host specified", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// netAPI are the methods of net.
type netAPI struct{ c *Chain }

func (a *netAPI) Version() string { return fmt.Sprint(a.c.id) }
func (a *netAPI) Listening() bool { return true }

// web3API are the methods of web3.
type web3API struct{}

func (web3API) ClientVersion() string                  { return "toll/embedded-chain" }
func (web3API) Sha3(input hexutil.Bytes) hexutil.Bytes { return crypto.Keccak256(input) }
