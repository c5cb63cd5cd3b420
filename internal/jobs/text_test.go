package jobs

import "testing"

// The log has keys that can be read as they are.
func TestKeyText(t *testing.T) {
	for key, want := range map[string]string{"pi_1": "pi_1", "\x00\xff": "00ff", "a b": "612062"} {
		if got := keyText([]byte(key)); got != want {
			t.Errorf("%q: %q", key, got)
		}
	}
}
