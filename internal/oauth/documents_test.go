package oauth

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll/internal/must"
)

// A cache that is full loses one document for each that comes: what is of no use first, what people need last.
// T121
func TestDocumentsGiveWayOneByOne(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	d := newDocuments(nil, func() time.Time { return now })
	remember := func(id string, err error, age time.Duration) {
		now = now.Add(time.Millisecond)
		d.remember(id, &knownClient{}, err, age)
	}
	has := func(id string) bool {
		_, ok := d.remembered(id)
		return ok
	}
	remember("needed", nil, time.Hour)
	d.needs("needed")
	remember("expired", nil, time.Second)
	remember("failed", errDocument, time.Hour)
	remember("old", nil, time.Hour)
	remember("used", nil, time.Hour)
	for i := range maxDocuments - 5 {
		remember(fmt.Sprint(i), nil, time.Hour)
	}
	now = now.Add(2 * time.Second)
	for i, gone := range []string{"expired", "failed", "old", "0"} {
		has("used") // it is used now
		remember(fmt.Sprint("new", i), nil, time.Hour)
		if len(d.known) != maxDocuments || has(gone) || !has("needed") || !has("used") || !has("1") {
			t.Fatalf("%s: %d documents, needed %v, used %v, 1 %v", gone, len(d.known), has("needed"), has("used"), has("1"))
		}
	}
	for i := range 10 * maxDocuments {
		remember(fmt.Sprint("flood", i), nil, time.Hour)
	}
	if !has("needed") || len(d.known) != maxDocuments {
		t.Errorf("after a flood: needed %v, %d documents", has("needed"), len(d.known))
	}
	// Who lets many programs in does not take the room of all.
	for i := range 10 * maxDocuments {
		remember(fmt.Sprint("mine", i), nil, time.Hour)
		d.needs(fmt.Sprint("mine", i))
	}
	needed := 0
	for _, f := range d.known {
		if f.needed {
			needed++
		}
	}
	if needed > maxDocuments/2+1 || len(d.known) != maxDocuments {
		t.Errorf("%d of %d documents are needed", needed, len(d.known))
	}
}

// One name takes its places and no more, some wait, and others do not notice.
// T121
func TestDocuments_Places(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSlots(2, 3)
		ctx, cancel := context.WithCancel(t.Context())
		var ran atomic.Int64
		names := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.names)
		}
		for range 5 {
			go func() {
				if leave, err := p.enter(ctx, "a"); err == nil {
					ran.Add(1)
					time.Sleep(time.Second)
					leave()
				}
			}()
		}
		synctest.Wait()
		if n := ran.Load(); n != 2 {
			t.Errorf("%d run", n)
		}
		if _, err := p.enter(ctx, "a"); !errors.Is(err, errManyFetches) {
			t.Errorf("the sixth: %v", err)
		}
		leave, err := p.enter(ctx, "b")
		must.Do(t, err, "another name")
		leave()
		time.Sleep(1500 * time.Millisecond)
		if n := ran.Load(); n != 4 {
			t.Errorf("%d ran after a second", n)
		}
		time.Sleep(2 * time.Second)
		if n := ran.Load(); n != 5 || names() != 0 {
			t.Errorf("%d ran, %d names are left", n, names())
		}
		l1, _ := p.enter(ctx, "a")
		l2, _ := p.enter(ctx, "a")
		go cancel()
		if _, err := p.enter(ctx, "a"); !errors.Is(err, errNoDocument) || errors.Is(err, errManyFetches) {
			t.Errorf("after the end of its request: %v", err)
		}
		l1()
		l2()
		if names() != 0 {
			t.Errorf("%d names are left", names())
		}
	})
}
