package backoff

import (
	"context"
	"testing"
	"time"
)

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		failures int
		want     time.Duration
	}{{0, 100}, {1, 100}, {2, 200}, {3, 400}, {4, 700}, {5, 700}, {31, 700}, {1 << 40, 700}} {
		for range 100 {
			got := Delay(100*time.Millisecond, 700*time.Millisecond, c.failures)
			if want := c.want * time.Millisecond; got > want || got < want/2 {
				t.Fatalf("after %d failures: %v, want %v to %v", c.failures, got, want/2, want)
			}
		}
	}
	if d := Delay(0, 0, 1); d != 0 {
		t.Errorf("no pause: %v", d)
	}
	if d := Delay(time.Second, time.Millisecond, 1); d > time.Millisecond {
		t.Errorf("the first pause is above the longest one: %v", d)
	}
}

func TestSleep(t *testing.T) {
	if !Sleep(t.Context(), time.Millisecond) {
		t.Error("a pause was interrupted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Sleep(ctx, time.Hour) {
		t.Error("an interrupted pause was complete")
	}
}
