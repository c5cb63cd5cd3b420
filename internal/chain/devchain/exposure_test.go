//go:build !nodevchain

package devchain

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/must"
)

// T73
func TestMethodsOverHTTP(t *testing.T) {
	c := start(t, Config{HTTP: "127.0.0.1:0"})
	remote := must.Get(rpc.Dial(c.URL()))(t)
	defer remote.Close()
	for method, want := range map[string]string{"eth_chainId": "0x14a34", "net_version": "84532", "web3_clientVersion": "toll"} {
		var got string
		if err := remote.CallContext(t.Context(), &got, method); err != nil || !strings.HasPrefix(strings.ToLower(got), want) {
			t.Errorf("%s: %q, %v", method, got, err)
		}
	}
	for _, method := range []string{
		"debug_setHead", "debug_traceTransaction", "debug_getRawBlock", "admin_nodeInfo", "admin_addPeer", "admin_stopHTTP", "admin_startHTTP",
		"personal_newAccount", "personal_unlockAccount", "miner_setExtra", "miner_setGasPrice", "txpool_content", "txpool_status",
		"engine_forkchoiceUpdatedV3", "engine_newPayloadV4", "dev_addWithdrawal", "dev_setFeeRecipient", "testing_buildBlockV1", "clique_propose",
	} {
		err := remote.CallContext(t.Context(), nil, method)
		var answer rpc.Error
		if !errors.As(err, &answer) || answer.ErrorCode() != -32601 {
			t.Errorf("%s: %v, want that the method does not exist", method, err)
		}
	}
	var modules map[string]string
	if err := remote.CallContext(t.Context(), &modules, "rpc_modules"); err != nil || len(modules) != 4 {
		t.Errorf("modules %v, %v: want eth, net, web3 and the list itself", modules, err)
	}
	var accounts []string
	if err := remote.CallContext(t.Context(), &accounts, "eth_accounts"); err != nil || len(accounts) != 0 {
		t.Errorf("accounts %v, %v", accounts, err)
	}
	for _, method := range []string{"eth_sign", "eth_sendTransaction"} {
		var params []any
		if method == "eth_sign" {
			params = []any{c.faucet.address, "0x00"}
		} else {
			params = []any{map[string]any{"from": c.faucet.address, "to": payee, "value": "0x1"}}
		}
		if err := remote.CallContext(t.Context(), nil, method, params...); err == nil {
			t.Errorf("%s signed with the key of the faucet", method)
		}
	}
}

// T73
func TestPagesCannotReachIt(t *testing.T) {
	c := start(t, Config{HTTP: "127.0.0.1:0"})
	ask := func(host, origin string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}`))
		must.Do(t, err)
		request.Header.Set("Content-Type", "application/json")
		if host != "" {
			request.Host = host
		}
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		transport := &http.Transport{DisableKeepAlives: true}
		response := must.Get(transport.RoundTrip(request))(t)
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return response
	}
	if response := ask("", ""); response.StatusCode != http.StatusOK {
		t.Errorf("a plain request: %v", response.Status)
	}
	if response := ask("chain.example", ""); response.StatusCode != http.StatusForbidden {
		t.Errorf("a name that was bound to loopback: %v", response.Status)
	}
	if response := ask("", "https://page.example"); response.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a page of another origin may read the answer")
	}
}

// T73
func TestOnlyLoopback(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "localhost:0", "example.com:0", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"} {
		if c, err := Start(t.Context(), Config{HTTP: address}); err == nil {
			t.Errorf("listens on %s", address)
			c.Close()
		}
	}

	c := start(t, Config{HTTP: "127.0.0.1:0"})
	where := must.Get(url.Parse(c.URL()))(t)
	hosts := []string{"127.0.0.2"}
	addresses := must.Get(net.InterfaceAddrs())(t)
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && !network.IP.IsLoopback() {
			hosts = append(hosts, network.IP.String())
		}
	}
	for _, host := range hosts {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(host, where.Port()), 200*time.Millisecond)
		if err == nil {
			connection.Close()
			t.Errorf("answers at %s", host)
		}
	}
	if silent := start(t, Config{}); silent.URL() != "" {
		t.Errorf("serves at %s without being asked to", silent.URL())
	}
}

// T73
func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	cmd, lines := process(t, dir)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "http://") {
		t.Fatalf("the process says %q", lines.Text())
	}
	go func() {
		for lines.Scan() {
		}
	}()
	if _, err := Start(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("beside another process: %v", err)
	}
	must.Do(t, cmd.Process.Kill())
	cmd.Wait()
	c := start(t, Config{Dir: dir})
	if _, err := Start(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("beside a chain of the same process: %v", err)
	}
	if _, err := c.Fund(t.Context(), payee, ether(1)); err != nil {
		t.Errorf("the refused start hurt the chain that runs: %v", err)
	}
}

// A call that runs when the chain closes ends before the database does, and gets its answer.
func TestCloseWaitsForCalls(t *testing.T) {
	c := start(t, Config{HTTP: "127.0.0.1:0"})
	address := strings.TrimPrefix(c.URL(), "http://")
	connection := must.Get(net.Dial("tcp", address))(t)
	defer connection.Close()
	body := `{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}`
	request := fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	begin, end := request[:len(request)-5], request[len(request)-5:]
	must.Get(io.WriteString(connection, begin))(t)
	// A second request shows that the server has accepted the first connection.
	must.Get(http.Post(c.URL(), "application/json", strings.NewReader(body)))(t).Body.Close()
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		probe, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		probe.Close()
	}
	must.Get(io.WriteString(connection, end))(t)
	answer, err := io.ReadAll(connection)
	if !strings.Contains(string(answer), `"result":"0x`) {
		t.Errorf("the call got %q, %v", answer, err)
	}
	must.Do(t, <-closed)
}

func TestAddressInUse(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	dir := t.TempDir()
	if _, err := Start(t.Context(), Config{Dir: dir, HTTP: taken.Addr().String()}); err == nil {
		t.Fatal("two listen at one address")
	}
	c := start(t, Config{Dir: dir, HTTP: "127.0.0.1:0"})
	if _, err := Start(t.Context(), Config{Dir: dir, HTTP: strings.TrimPrefix(c.URL(), "http://")}); !errors.Is(err, ErrInUse) {
		t.Errorf("the same again: %v", err)
	}
}
