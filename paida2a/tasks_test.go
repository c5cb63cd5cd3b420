package paida2a

import (
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
)

// TestBook: tasks are bounded, those that are not paid go first, and a task that runs stays.
func TestBook(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	b := newBook(3, time.Minute)
	made := func(id a2a.TaskID, p phase) *task {
		t.Helper()
		k := &task{id: id, phase: p, bytes: 10}
		if err := b.add(k, now); err != nil {
			t.Fatal(err)
		}
		return k
	}
	there := func(ids ...a2a.TaskID) {
		t.Helper()
		for _, id := range ids {
			if b.tasks[id] == nil {
				t.Errorf("%s is gone", id)
			}
		}
		if len(b.tasks) != len(ids) || b.bytes != 10*len(ids) || b.open.Len()+b.over.Len() > len(ids) {
			t.Errorf("%d tasks, %d bytes, want %v", len(b.tasks), b.bytes, ids)
		}
	}
	over := made("over", phaseOver)
	if !b.claimed("n1", over) || b.claimed("n1", &task{}) || !b.claimed("", &task{}) {
		t.Error("claims")
	}
	made("open 1", phaseOpen)
	made("open 2", phaseOpen)
	made("running", phaseRunning)
	there("over", "open 2", "running")
	made("settling", phaseSettling)
	there("over", "running", "settling")
	made("open 3", phaseOpen)
	there("open 3", "running", "settling")
	if !b.claimed("n1", &task{}) {
		t.Error("the claim of a task that is gone")
	}
	b.tasks["open 3"].phase = phaseRunning
	b.put(b.tasks["open 3"], now)
	if err := b.add(&task{id: "too many"}, now); err == nil {
		t.Error("a fourth task")
	}
	there("open 3", "running", "settling")
	b.tasks["running"].phase = phaseOver
	b.put(b.tasks["running"], now)
	now = now.Add(time.Minute)
	if _, err := b.find("running", now); err == nil {
		t.Error("a task whose time is over")
	}
	there("open 3", "settling")

	b.maximum = 25
	if err := b.add(&task{id: "large", bytes: 10}, now); err == nil {
		t.Error("more bytes than there may be")
	}
}
