package mcpproxy_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/tollhq/toll/tolltest"
)

// shared is the service of tests that need none of their own.
var shared struct {
	once sync.Once
	svc  *tolltest.Service
	err  error
}

// service returns a service that is shared with whoever else asks. Its clock only moves forward. A test takes subscribers of
// its own, and leaves plan and agent as they are.
func service(t testing.TB) *tolltest.Service {
	t.Helper()
	shared.once.Do(func() { shared.svc, shared.err = tolltest.Start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.svc
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.svc != nil {
		if err := shared.svc.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
