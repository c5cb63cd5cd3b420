package pay_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
)

// TestEndedKey: every access token of an ended key is over, also one that was made while it ended, and in another process as
// well. Open holds still settle, and access tokens of other keys go on.
// T13
func TestEndedKey(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(ten)
		a := s.agent(nil, p)
		s.mint(p, s1, 1000)
		maker := must.Get(s.one().auth.CreateKey(s.ctx, auth.Local(s1), auth.KeyParams{}, nil))(s)
		child, err := s.at(1).auth.CreateKey(s.ctx, auth.Caller{Address: s1, KeyID: maker.ID, Rights: maker.Rights}.Maker(), auth.KeyParams{}, nil)
		must.Do(s, err)
		other := must.Get(s.one().auth.CreateKey(s.ctx, auth.Local(s1), auth.KeyParams{}, nil))(s)
		create := func(i *instance, key toll.APIKey) (*toll.AccessToken, error) {
			who := auth.Caller{Address: s1, KeyID: key.ID, Rights: key.Rights}
			return i.Tokens.Create(s.ctx, who, &tokens.PermissionRequest{PlanID: p.ID}, nil)
		}
		stays := must.Get(create(s.one(), other))(s)
		first := must.Get(create(s.one(), maker))(s)
		hold := s.call(p, a, first).hold(nil).AgentRequestID

		// More than one slice of them, made by two keys in two processes while the parent of both ends.
		var mu sync.Mutex
		var wg sync.WaitGroup
		tokens := []*toll.AccessToken{first}
		begun := make(chan struct{}, 8)
		for i := range 8 {
			wg.Go(func() {
				key := []toll.APIKey{maker, child}[i%2]
				for n := range 40 {
					token, err := create(s.at(i), key)
					if n == 5 {
						begun <- struct{}{}
					}
					if errors.Is(err, toll.NewError(toll.CodeNotAuthenticated)) {
						return
					}
					if err != nil {
						s.Error(err)
						return
					}
					mu.Lock()
					tokens = append(tokens, token)
					mu.Unlock()
				}
			})
		}
		for range 8 {
			<-begun
		}
		ended := must.Get(s.one().auth.EndKey(s.ctx, s1, maker.ID))(s)
		wg.Wait()
		if ended.Ended.APIKeys != 1 || ended.Ended.AccessTokens != int64(len(tokens)) {
			s.Errorf("%+v of %d access tokens", ended.Ended, len(tokens))
		}
		s.clock.add(2 * time.Second) // what another process remembers
		for _, token := range tokens {
			for i := range s.inst {
				if v, err := s.call(p, a, token).verify(s.at(i), nil); err == nil && v.IsValid {
					s.Fatal("an access token of an ended key is valid")
				}
			}
			if r, err := s.call(p, a, token).settle(s.at(1), "", nil); err == nil && r.Success {
				s.Fatal("an access token of an ended key settles")
			}
		}
		if r, err := s.call(p, a, first).settle(s.at(1), hold, nil); err != nil || !r.Success {
			s.Errorf("an open hold: %+v, %v", r, err)
		}
		if r, err := s.call(p, a, stays).settle(s.at(1), "", nil); err != nil || !r.Success {
			s.Errorf("another key's: %+v, %v", r, err)
		}
		if _, err := create(s.at(1), maker); !errors.Is(err, toll.NewError(toll.CodeNotAuthenticated)) {
			s.Errorf("made by an ended key: %v", err)
		}
		s.clock.add(time.Hour)
		if n, err := s.at(1).endingJobs(s).RunDue(s.ctx); n != 0 || err != nil {
			s.Errorf("something is left to end: %d, %v", n, err)
		}
	})
}

// crashing ends no access token.
type crashing struct{ auth.Tokens }

var errCrash = errors.New("crash")

func (crashing) RevokeOfKey(context.Context, toll.Hash) (int64, error) { return 0, errCrash }

// endingJobs is the queue of a process, which ends what calls were interrupted in.
func (i *instance) endingJobs(s *scene) *jobs.Queue {
	q := jobs.NewQueue(i.store, s.clock.now, nil)
	q.Handle(store.JobEndKey, i.auth.FinishKey)
	return q
}

// TestEndedKey_Interrupted: what a crash keeps from being ended, a job ends.
func TestEndedKey_Interrupted(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(ten)
		a := s.agent(nil, p)
		s.mint(p, s1, 100)
		key := must.Get(s.one().auth.CreateKey(s.ctx, auth.Local(s1), auth.KeyParams{}, nil))(s)
		token := must.Get(s.one().Tokens.Create(s.ctx, auth.Caller{Address: s1, KeyID: key.ID}, &tokens.PermissionRequest{PlanID: p.ID}, nil))(s)
		s.one().auth.EndTokensBy(crashing{s.one().Tokens})
		if _, err := s.one().auth.EndKey(s.ctx, s1, key.ID); !errors.Is(err, errCrash) {
			s.Fatal("the end was not interrupted")
		}
		again := s.one()
		again.auth.EndTokensBy(again.Tokens)
		queue := again.endingJobs(s)
		if n, err := queue.RunDue(s.ctx); n != 0 || err != nil {
			s.Error(n, err)
		}
		if v, err := s.call(p, a, token).verify(again, nil); err != nil || !v.IsValid {
			s.Errorf("another call may still be ending it: %v", err)
		}
		s.clock.add(time.Minute + time.Second)
		for _, want := range []int{1, 0} {
			if n, err := queue.RunDue(s.ctx); n != want || err != nil {
				s.Errorf("%d jobs, want %d: %v", n, want, err)
			}
		}
		if v, err := s.call(p, a, token).verify(again, nil); err == nil && v.IsValid {
			s.Error("the access token is valid")
		}
	})
}

// TestEndedKey_LastSecond: an API key makes no access token that would be over at once, which is no failure of the service.
func TestEndedKey_LastSecond(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	p := s.plan(nil)
	for left, ok := range map[time.Duration]bool{0: false, 300 * time.Millisecond: false, time.Second: true} {
		caller := auth.Caller{Address: s1, Ends: s.clock.now().Add(left)}
		_, err := s.one().Tokens.Create(s.ctx, caller, &tokens.PermissionRequest{PlanID: p.ID}, nil)
		if ok {
			must.Do(s, err)
		} else {
			s.code(err, toll.CodeNotAuthenticated)
		}
	}
}
