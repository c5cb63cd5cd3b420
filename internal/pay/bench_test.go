package pay_test

import (
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// benchScene has accounts of many subscribers, each with an access token, all at one agent.
func benchScene(b *testing.B, v storetest.Variant, accounts int) (*scene, []*call) {
	s := newScene(b, v, 1)
	p := s.plan(dynamic(1, 10))
	a := s.agent(nil, p)
	calls := make([]*call, accounts)
	for i := range calls {
		holder := toll.Address{1, 18: byte(i >> 8), 19: byte(i)}
		s.mint(p, holder, toll.MaxCredits/2)
		calls[i] = s.call(p, a, s.token(p, holder, nil))
	}
	return s, calls
}

func benchEach(b *testing.B, f func(b *testing.B, s *scene, next func() *call)) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		for _, accounts := range []int{64, 1} {
			name := string(v) + map[int]string{64: "/uniform", 1: "/hot"}[accounts]
			b.Run(name, func(b *testing.B) {
				s, calls := benchScene(b, v, accounts)
				var n atomic.Int64
				next := func() *call { return calls[int(n.Add(1))%len(calls)] }
				b.ReportAllocs()
				b.SetParallelism(32) // 64 callers on two cores
				b.ResetTimer()
				f(b, s, next)
			})
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	benchEach(b, func(b *testing.B, s *scene, next func() *call) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if v, err := next().verify(s.one(), nil); err != nil || !v.IsValid {
					b.Errorf("%v %+v", err, v)
				}
			}
		})
	})
}

// BenchmarkHoldAndRelease releases what it holds, as the holds of an account are bounded: two commits for one operation.
func BenchmarkHoldAndRelease(b *testing.B) {
	benchEach(b, func(b *testing.B, s *scene, next func() *call) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				v, err := next().verify(s.one(), held)
				if err != nil || !v.IsValid {
					b.Errorf("%v %+v", err, v)
					return
				}
				if _, err := s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: v.AgentRequestID}); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

func BenchmarkSettle(b *testing.B) { benchSettle(b, toll.UsageLabels{}) }

// BenchmarkSettleLabeled is [BenchmarkSettle] with the labels of a gate.
func BenchmarkSettleLabeled(b *testing.B) {
	benchSettle(b, toll.UsageLabels{Upstream: "openai", Route: "POST /v1/chat/completions", Model: "small-1"})
}

func benchSettle(b *testing.B, labels toll.UsageLabels) {
	benchEach(b, func(b *testing.B, s *scene, next func() *call) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r, err := next().settle(s.one(), "", func(r *x402.SettleRequest) { r.MaxAmount, r.Labels = toll.Credits(1).Ptr(), labels })
				if err != nil || !r.Success {
					b.Errorf("%v %+v", err, r)
				}
			}
		})
	})
}

func BenchmarkHoldAndSettle(b *testing.B) {
	benchEach(b, func(b *testing.B, s *scene, next func() *call) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c := next()
				v, err := c.verify(s.one(), held)
				if err != nil || !v.IsValid {
					b.Errorf("%v %+v", err, v)
					return
				}
				if r, err := c.settle(s.one(), v.AgentRequestID, nil); err != nil || !r.Success {
					b.Errorf("%v %+v", err, r)
				}
			}
		})
	})
}
