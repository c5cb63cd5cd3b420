package endpoints_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tollhq/toll/internal/chain/endpoints"
)

// The tests that need a chain are in internal/chain/chaintest.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNew_Refuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  endpoints.Config
		want string
	}{
		{"nothing", endpoints.Config{ChainID: 1}, "no endpoint"},
		{"no chain", endpoints.Config{URLs: []string{"https://a.example"}}, "no chain id"},
		{"websocket", endpoints.Config{ChainID: 1, URLs: []string{"wss://a.example/secret-key"}}, "endpoint 1"},
		{"no URL", endpoints.Config{ChainID: 1, URLs: []string{"https://a.example", "://secret-key"}}, "endpoint 2"},
		{"no host", endpoints.Config{ChainID: 1, URLs: []string{"https:///secret-key"}}, "endpoint 1"},
		{"twice", endpoints.Config{ChainID: 1, URLs: []string{"https://a.example/secret-key", "https://a.example/secret-key"}}, "endpoint 2 is given twice"},
		{"nobody to agree with", endpoints.Config{ChainID: 1, Agree: true, URLs: []string{"https://a.example/secret-key"}}, "two endpoints"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := endpoints.New(tt.cfg)
			if err == nil {
				p.Close()
				t.Fatal("taken")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret-key") {
				t.Errorf("error %q, want one about %q", err, tt.want)
			}
		})
	}
}
