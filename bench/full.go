package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// full begins the names of the markets that have many settlements already.
const full = "full-"

func kindOf(market string) string { return strings.TrimPrefix(market, full) }

// settlements are to be put into a database that no service works on.
type settlements struct {
	Count       int
	Plan        toll.PlanID
	Agent       toll.AgentID
	Subscribers []toll.Address // in turn; they have the credits
}

const (
	// loadCallers fill a batch of the writer.
	loadCallers = 512
	// loadRun is the number of consecutive settlements of one subscriber: a batch then changes few accounts and takes a tenth of the time.
	loadRun = 64
	// derivePatience bounds the loading of a database and the making of its events.
	derivePatience = 5 * time.Minute
)

// storedAnswer is what the ledger keeps of nearly every answer (internal/pay/render.go).
var storedAnswer = []byte{1, 0, 0}

// load settles through the ledger, as the service does, so that every row, commitment and index is as in a database that grew.
func (s *serviceRole) load(ctx context.Context, n *settlements) (err error) {
	st, err := store.Open(ctx, store.Config{Data: s.Data, Database: s.Database, Log: logger()})
	if err != nil {
		return err
	}
	l := ledger.New(st, ledger.Config{MACKey: make([]byte, 32)}) // issues nothing
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx)), st.Close()) }()
	permissions := make([]toll.Hash, len(n.Subscribers))
	err = together(len(permissions), func(i int) error {
		permissions[i] = toll.NewHash()
		return l.CreatePermission(ctx, ledger.Permission{
			Hash: permissions[i], Plan: n.Plan, Subscriber: n.Subscribers[i], CreatedAt: time.Now(),
			ExpiresAt: time.Now().Add(24 * time.Hour),
		})
	})
	if err != nil {
		return err
	}
	var next atomic.Int64
	var g errgroup.Group
	for range loadCallers {
		g.Go(func() error {
			for k := next.Add(1) - 1; k < int64(n.Count); k = next.Add(1) - 1 {
				i := int(k/loadRun) % len(permissions)
				id := fmt.Sprintf("load-%016x", k)
				_, err := l.Settle(ctx, ledger.SettleOp{
					Plan: n.Plan, Subscriber: n.Subscribers[i], Agent: n.Agent, Permission: permissions[i], RequestID: id, Resource: "/ask",
					Content: sha256.Sum256([]byte(id)), Amount: 1, Render: func(ledger.Receipt) []byte { return storedAnswer },
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// loadUp puts settlements into the database of a market, whose service stops meanwhile.
func (m *market) loadUp(count int) error {
	return m.restart(func() error {
		s := &settlements{count, m.plan, m.seller, m.subscribers}
		p, err := spawn("loader-"+m.engine, role{Service: &m.role, Load: s})
		if err == nil {
			err = p.end()
			m.settled += count
		}
		return err
	})
}

// restart starts the service again under its address, so that it has nothing in its memory.
func (m *market) restart(between func() error) error {
	if _, err := m.service.quit(false); err != nil {
		return err
	}
	if between != nil {
		if err := between(); err != nil {
			return err
		}
	}
	p, err := spawn(m.service.name, role{Service: &m.role, Listen: m.service.addr})
	if err == nil {
		m.service = p
	}
	return err
}
