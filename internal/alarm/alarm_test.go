package alarm_test

import (
	"bytes"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/alarm"
)

// Each alarm has an entry in the runbook, and the runbook no other.
func TestRunbook(t *testing.T) {
	page, err := os.ReadFile("../../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "\n## Alarms\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var written, known []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(part, -1) {
		written = append(written, m[1])
	}
	for _, id := range alarm.IDs() {
		known = append(known, id.String())
	}
	slices.Sort(written)
	slices.Sort(known)
	if !slices.Equal(written, known) {
		t.Errorf("the runbook has\n%v, the code\n%v", written, known)
	}
	if unique := slices.Compact(slices.Clone(known)); len(unique) != len(known) {
		t.Error("an id is there twice")
	}
}

func TestCount(t *testing.T) {
	var out bytes.Buffer
	var counted []string
	log := slog.New(alarm.Count(slog.NewTextHandler(&out, nil), func(id string) { counted = append(counted, id) })).With("a", 1)
	alarm.Log(t.Context(), log, alarm.RelayerLow, "gas money ends", "wei", 5)
	log.Error("something else")
	log.Info("not an alarm", "alarm", "relayer-low")
	if !slices.Equal(counted, []string{"relayer-low"}) {
		t.Errorf("%v", counted)
	}
	if !strings.Contains(out.String(), `msg="alarm: gas money ends" a=1 alarm=relayer-low wei=5`) {
		t.Error(out.String())
	}
}
