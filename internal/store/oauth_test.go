package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func TestOAuthClients(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		one := store.OAuthClient{
			ID: "one", Name: "One", AuthMethod: "none", Secret: []byte{9}, Grants: []string{"authorization_code", "refresh_token"}, Scope: "a b", Details: "{}", CreatedAt: noon, UsedAt: noon,
		}
		shared := one
		shared.ID, shared.Secret = "shared", []byte{1, 2}
		enrol := func(c store.OAuthClient, now time.Time, redirects ...store.OAuthRedirect) {
			write(t, st, func(tx *store.Tx) error {
				err := store.InsertOAuthClient(ctx, tx, c)
				for _, r := range redirects {
					err = errors.Join(err, store.InsertOAuthRedirect(ctx, tx, c.ID, r, now), store.TouchOAuthClient(ctx, tx, c.ID, r.URI, now))
				}
				return err
			})
		}
		a, b := store.OAuthRedirect{URI: "https://a/", Name: "A", Shared: true}, store.OAuthRedirect{URI: "https://b/", Name: "B", Shared: true}
		enrol(one, noon, store.OAuthRedirect{URI: "https://a/", Name: "One"})
		enrol(shared, noon, a)
		again := shared
		again.Name, again.Secret = "Thief", []byte{3}
		enrol(again, noon.Add(time.Hour), store.OAuthRedirect{URI: "https://a/", Name: "Thief", Shared: true}, b)
		same(t, must.Get(store.OAuthClientByID(ctx, st, "one"))(t), one)
		shared.UsedAt = noon.Add(time.Hour) // by the second one
		same(t, must.Get(store.OAuthClientByID(ctx, st, "shared"))(t), shared)
		near := func(client, uri, prefix string, n int) []store.OAuthRedirect {
			return must.Get(store.OAuthRedirectsNear(ctx, st, client, uri, prefix, n))(t)
		}
		same(t, near("shared", "https://b/", "", 10), []store.OAuthRedirect{b})
		same(t, near("shared", "https://c/", "", 10), []store.OAuthRedirect(nil))
		same(t, near("shared", "https://b/", "https:", 10), []store.OAuthRedirect{b, a})
		same(t, near("shared", "https://c/", "https://a", 10), []store.OAuthRedirect{a})
		same(t, near("shared", "https://b/", "https:", 1), []store.OAuthRedirect{b})

		write(t, st, func(tx *store.Tx) error {
			return store.TouchOAuthClient(ctx, tx, "shared", "https://b/", noon.Add(2*time.Hour))
		})
		same(t, must.Get(store.DropOAuthClients(ctx, st, noon.Add(90*time.Minute), 10))(t), 1)
		_, err := store.OAuthClientByID(ctx, st, "one")
		notFound(t, err)
		same(t, near("one", "", "https:", 10), []store.OAuthRedirect(nil))
		same(t, near("shared", "", "https:", 10), []store.OAuthRedirect{b})
	})
}

// TestOAuthUnusedClients: what nobody let in gives way, the oldest first, and what somebody let in does not.
func TestOAuthUnusedClients(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
		enrol := func(minute int, id string, shared bool, uris ...string) {
			write(t, st, func(tx *store.Tx) error {
				err := store.InsertOAuthClient(ctx, tx, store.OAuthClient{ID: id, Details: "{}", CreatedAt: at(minute)})
				for _, uri := range uris {
					err = errors.Join(err, store.InsertOAuthRedirect(ctx, tx, id, store.OAuthRedirect{URI: uri, Shared: shared}, at(minute)))
				}
				return err
			})
		}
		enrol(0, "let in", false, "https://a/", "https://b/")
		enrol(0, "device", false, "https://a/")
		enrol(0, "shared", true, "https://used/", "https://unused/")
		enrol(1, "old", false, "https://a/", "https://b/")
		enrol(2, "new", false, "https://a/")
		write(t, st, func(tx *store.Tx) error {
			return errors.Join(store.GrantOAuthClient(ctx, tx, "let in", "https://b/", at(3)), store.GrantOAuthClient(ctx, tx, "device", "", at(3)),
				store.GrantOAuthClient(ctx, tx, "shared", "https://used/", at(3)), store.GrantOAuthClient(ctx, tx, "nobody", "https://a/", at(3)))
		})
		unused := func(want int64) {
			t.Helper()
			same(t, must.Get(store.CountUnusedOAuthRedirects(ctx, st, "", 10))(t), want)
		}
		drop := func(before int, n, want int64) {
			t.Helper()
			write(t, st, func(tx *store.Tx) error {
				gone, err := store.DropUnusedOAuthRedirects(ctx, tx, "", at(before), n)
				same(t, gone, want)
				return err
			})
		}
		unused(4)
		same(t, must.Get(store.CountUnusedOAuthRedirects(ctx, st, "", 3))(t), int64(3))
		drop(0, 10, 0)
		drop(10, 1, 1)
		unused(3)
		drop(10, 1, 2) // a client goes with all its addresses
		drop(2, 10, 0)
		unused(1)
		for id, want := range map[string]bool{"let in": true, "device": true, "shared": true, "old": false, "new": true} {
			if _, err := store.OAuthClientByID(ctx, st, id); (err == nil) != want {
				t.Errorf("%s: %v", id, err)
			}
		}
		same(t, len(must.Get(store.OAuthRedirectsNear(ctx, st, "shared", "", "https:", 10))(t)), 1)
		same(t, len(must.Get(store.OAuthRedirectsNear(ctx, st, "let in", "", "https:", 10))(t)), 2)

		// One source has its own room.
		write(t, st, func(tx *store.Tx) error {
			r := store.OAuthRedirect{URI: "https://mine/", Source: "192.0.2.1"}
			return errors.Join(store.InsertOAuthClient(ctx, tx, store.OAuthClient{ID: "mine", Details: "{}", CreatedAt: at(5)}),
				store.InsertOAuthRedirect(ctx, tx, "mine", r, at(5)))
		})
		for source, want := range map[string]int64{"192.0.2.1": 1, "192.0.2.2": 0, "": 2} {
			same(t, must.Get(store.CountUnusedOAuthRedirects(ctx, st, source, 10))(t), want)
		}
		write(t, st, func(tx *store.Tx) error {
			gone, err := store.DropUnusedOAuthRedirects(ctx, tx, "192.0.2.1", at(10), 10)
			same(t, gone, int64(1))
			return err
		})
		unused(1)
		drop(10, 10, 1)
		unused(0)
	})
}

// TestOAuthTrim: of clients that somebody let in too many go, those first whose consents are over, and then what was not used for
// the longest time.
func TestOAuthTrim(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
		letIn := func(minute int, id string, shared bool, ends int, uris ...string) {
			write(t, st, func(tx *store.Tx) error {
				err := store.InsertOAuthClient(ctx, tx, store.OAuthClient{ID: id, Details: "{}", CreatedAt: noon})
				for _, uri := range uris {
					err = errors.Join(err, store.InsertOAuthRedirect(ctx, tx, id, store.OAuthRedirect{URI: uri, Shared: shared}, noon),
						store.GrantOAuthClient(ctx, tx, id, uri, at(minute)))
				}
				return errors.Join(err, store.InsertOAuthGrant(ctx, tx, store.OAuthGrant{
					ID: toll.NewHash(), ClientID: id, Owner: alice, CreatedAt: noon, EndsAt: at(ends),
				}))
			})
		}
		revoked := toll.NewHash()
		letIn(1, "holds", false, 60, "https://a/", "https://b/")
		letIn(2, "shared", true, 60, "https://a/")
		letIn(5, "shared", true, 60, "https://b/")
		letIn(3, "over", false, 20, "https://a/")
		letIn(4, "revoked", false, 20, "https://a/", "https://b/")
		letIn(19, "late", false, 20, "https://a/")
		write(t, st, func(tx *store.Tx) error {
			err := store.InsertOAuthClient(ctx, tx, store.OAuthClient{ID: "unused", Details: "{}", CreatedAt: noon})
			return errors.Join(err, store.InsertOAuthRedirect(ctx, tx, "unused", store.OAuthRedirect{URI: "https://a/"}, noon),
				store.InsertOAuthGrant(ctx, tx, store.OAuthGrant{ID: revoked, ClientID: "revoked", Owner: alice, CreatedAt: noon, EndsAt: at(60)}),
				store.RevokeOAuthGrant(ctx, tx, revoked, noon))
		})
		for _, c := range []struct {
			most, n, gone int64
			stay          string
		}{
			{8, 10, 0, "holds shared over revoked late unused"},
			{7, 10, 1, "holds shared revoked late unused"}, // not the oldest, as its consent holds
			{0, 1, 2, "holds shared late unused"},          // a client goes with all its addresses
			{3, 10, 2, "shared late unused"},               // what was used a minute ago is kept, so one with a consent goes
			{2, 10, 1, "shared late unused"},
			{1, 10, 1, "shared late unused"},
			{0, 10, 0, "shared late unused"},
		} {
			same(t, must.Get(store.TrimOAuthClients(ctx, st, at(20), at(15), c.most, c.n))(t), c.gone)
			var stay []string
			for _, id := range []string{"holds", "shared", "over", "revoked", "late", "unused"} {
				if _, err := store.OAuthClientByID(ctx, st, id); err == nil {
					stay = append(stay, id)
				}
			}
			same(t, strings.Join(stay, " "), c.stay)
			if shared := must.Get(store.OAuthRedirectsNear(ctx, st, "shared", "", "https:", 10))(t); c.most == 2 && (len(shared) != 1 || shared[0].URI != "https://b/") {
				t.Errorf("of a shared client %+v stay", shared)
			}
		}
	})
}

// TestOAuthRenewed: what a person is asked about gives way as late as what is fresh.
func TestOAuthRenewed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
		write(t, st, func(tx *store.Tx) error {
			var err error
			for id, shared := range map[string]bool{"one": false, "shared": true} {
				err = errors.Join(err, store.InsertOAuthClient(ctx, tx, store.OAuthClient{ID: id, Details: "{}", CreatedAt: noon}))
				for _, uri := range []string{"https://a/", "https://b/"} {
					err = errors.Join(err, store.InsertOAuthRedirect(ctx, tx, id, store.OAuthRedirect{URI: uri, Shared: shared}, noon))
				}
				err = errors.Join(err, store.RenewOAuthClient(ctx, tx, id, "https://a/", at(9)), store.RenewOAuthClient(ctx, tx, id, "https://a/", at(8)))
			}
			return err
		})
		for minute, want := range map[int]int64{9: 1, 10: 4} {
			gone := int64(0)
			undo := errors.New("undo")
			if err := st.Tx(ctx, func(tx *store.Tx) (err error) {
				if gone, err = store.DropUnusedOAuthRedirects(ctx, tx, "", at(minute), 10); err == nil {
					err = undo
				}
				return err
			}); !errors.Is(err, undo) {
				t.Fatal(err)
			}
			same(t, gone, want)
		}
	})
}

func TestOAuthGrants(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		limit, orders := toll.Credits(7), int64(2)
		full := store.OAuthGrant{
			ID: toll.NewHash(), ClientID: "c", ClientName: "C", Digest: []byte{1}, Owner: alice, Kind: "permission", Scope: "a", Resource: "https://r/", Nonce: "n",
			PlanID: toll.NewPlanID(), AgentID: toll.NewAgentID(), DelegationID: "d", RedemptionLimit: &limit, OrderLimit: &orders, Refreshes: true, Life: time.Hour,
			CreatedAt: noon, EndsAt: noon.Add(time.Minute),
		}
		bare := store.OAuthGrant{ID: toll.NewHash(), Digest: []byte{2}, Owner: bob, Kind: "api_key", Life: time.Minute, CreatedAt: noon, EndsAt: noon.Add(time.Minute)}
		code := store.OAuthCode{Hash: []byte("code"), GrantID: full.ID, Redirect: "https://a/", Challenge: "x", ExpiresAt: noon.Add(time.Minute)}
		refresh := store.OAuthRefresh{Hash: []byte("refresh"), GrantID: full.ID, CreatedAt: noon}
		first, second := toll.NewHash(), toll.NewHash()
		write(t, st, func(tx *store.Tx) error {
			return errors.Join(store.InsertOAuthGrant(ctx, tx, full), store.InsertOAuthGrant(ctx, tx, bare), store.InsertOAuthCode(ctx, tx, code),
				store.InsertOAuthRefresh(ctx, tx, refresh), store.InsertOAuthAccess(ctx, tx, first, full.ID, noon),
				store.InsertOAuthAccess(ctx, tx, second, full.ID, noon.Add(time.Second)))
		})
		same(t, must.Get(store.OAuthGrantByID(ctx, st, full.ID))(t), full)
		same(t, must.Get(store.OAuthGrantByID(ctx, st, bare.ID))(t), bare)
		same(t, must.Get(store.OAuthGrantOfAccess(ctx, st, first))(t), full)
		_, err := store.OAuthGrantOfAccess(ctx, st, toll.NewHash())
		notFound(t, err)
		same(t, must.Get(store.OAuthAccess(ctx, st, full.ID, 1))(t), []toll.Hash{second})
		same(t, must.Get(store.OAuthCodeByHash(ctx, st, code.Hash))(t), code)
		same(t, must.Get(store.OAuthRefreshByHash(ctx, st, refresh.Hash))(t), refresh)
		same(t, len(must.Get(store.OAuthGrantsOf(ctx, st, alice, noon, 10))(t)), 1)

		for n, want := range []bool{true, false} {
			write(t, st, func(tx *store.Tx) error {
				used, err := store.UseOAuthCode(ctx, tx, code.Hash, noon)
				same(t, used, want)
				again, err2 := store.UseOAuthRefresh(ctx, tx, refresh.Hash, noon.Add(time.Duration(n)), []byte{byte(n)})
				same(t, again, want)
				return errors.Join(err, err2, store.BeginOAuthGrant(ctx, tx, full.ID, noon.Add(time.Hour)))
			})
		}
		same(t, must.Get(store.OAuthCodeByHash(ctx, st, code.Hash))(t).UsedAt, noon)
		same(t, must.Get(store.OAuthRefreshByHash(ctx, st, refresh.Hash))(t).Successor, []byte{0})

		write(t, st, func(tx *store.Tx) error { return store.RevokeOAuthGrant(ctx, tx, full.ID, noon) })
		notFound(t, st.Tx(ctx, func(tx *store.Tx) error { return store.BeginOAuthGrant(ctx, tx, full.ID, noon) }))
		soon := noon.Add(time.Minute) // until then it is the caller's
		same(t, must.Get(store.OAuthGrantByID(ctx, st, full.ID))(t).RevokedAt, noon)
		same(t, len(must.Get(store.DueJobs(ctx, st, soon.Add(-time.Microsecond)))(t)), 0)
		same(t, must.Get(store.DueJobs(ctx, st, soon))(t), []string{store.JobEndGrant})
		same(t, len(must.Get(store.OAuthGrantsOf(ctx, st, alice, noon, 10))(t)), 0)

		same(t, must.Get(store.DropOAuthGrants(ctx, st, noon.Add(2*time.Hour), 10))(t), 1) // what is being ended stays
		write(t, st, func(tx *store.Tx) error { return store.EndOAuthGrant(ctx, tx, full.ID) })
		same(t, len(must.Get(store.DueJobs(ctx, st, noon.Add(time.Hour)))(t)), 0)
		same(t, must.Get(store.DropOAuthGrants(ctx, st, noon.Add(2*time.Hour), 10))(t), 1)
		_, err = store.OAuthCodeByHash(ctx, st, code.Hash)
		notFound(t, err)
		_, err = store.OAuthRefreshByHash(ctx, st, refresh.Hash)
		notFound(t, err)
	})
}

func TestOAuthDevices(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		d := store.OAuthDevice{
			Hash: []byte("device"), UserHash: []byte("user"), ClientID: "c", Scope: "s", Resource: "https://r/", PlanID: toll.NewPlanID(), AgentID: toll.NewAgentID(),
			Source: "127.0.0.1", Counted: "a", CreatedAt: noon, ExpiresAt: noon.Add(10 * time.Minute), PollSecs: 5,
		}
		write(t, st, func(tx *store.Tx) error { return store.InsertOAuthDevice(ctx, tx, d) })
		twin := d
		twin.Hash = []byte("twin")
		if err := st.Tx(ctx, func(tx *store.Tx) error { return store.InsertOAuthDevice(ctx, tx, twin) }); !store.IsUnique(err) {
			t.Errorf("a user code twice: %v", err)
		}
		same(t, must.Get(store.OAuthDeviceByHash(ctx, st, d.Hash))(t), d)
		same(t, must.Get(store.OAuthDeviceByUserHash(ctx, st, d.UserHash))(t), d)
		waiting := func(at time.Time, most int64, source string) [2]int64 {
			t.Helper()
			all, of, err := store.CountOAuthDevices(ctx, st, at, most, source, most)
			must.Do(t, err)
			return [2]int64{all, of}
		}
		same(t, waiting(noon, 10, "a"), [2]int64{1, 1})
		same(t, waiting(noon, 0, "a"), [2]int64{0, 0})
		same(t, waiting(noon, 10, "b"), [2]int64{1, 0})
		same(t, waiting(d.ExpiresAt, 10, "a"), [2]int64{0, 0})
		grant := toll.NewHash()
		for _, want := range []bool{true, false} {
			write(t, st, func(tx *store.Tx) error {
				polled, err1 := store.PollOAuthDevice(ctx, tx, d, noon, 10)
				decided, err2 := store.DecideOAuthDevice(ctx, tx, d.Hash, grant)
				used, err3 := store.UseOAuthDevice(ctx, tx, d.Hash, noon)
				same(t, []bool{polled, decided, used}, []bool{want, want, want})
				return errors.Join(err1, err2, err3)
			})
		}
		got := must.Get(store.OAuthDeviceByHash(ctx, st, d.Hash))(t)
		if got.GrantID != grant || got.PollSecs != 10 || got.PollAt != noon || got.UsedAt != noon || got.Denied {
			t.Errorf("%+v", got)
		}
		same(t, waiting(noon, 10, "a"), [2]int64{1, 0}) // it has its tokens
		twin.UserHash = []byte("other")
		write(t, st, func(tx *store.Tx) error {
			denied, err := store.DecideOAuthDevice(ctx, tx, twin.Hash, toll.Hash{})
			same(t, denied, false)
			return errors.Join(err, store.InsertOAuthDevice(ctx, tx, twin))
		})
		for _, want := range []bool{true, false} {
			write(t, st, func(tx *store.Tx) error {
				denied, err := store.DecideOAuthDevice(ctx, tx, twin.Hash, toll.Hash{})
				same(t, denied, want)
				return err
			})
		}

		for _, c := range []struct{ at, want int64 }{{0, 1}, {1, 2}, {9, 3}, {11, 1}} {
			now := noon.Add(time.Duration(c.at) * time.Minute)
			since := now.Add(-10 * time.Minute)
			write(t, st, func(tx *store.Tx) error { return store.CountOAuthGuess(ctx, tx, alice, now, since) })
			same(t, must.Get(store.OAuthGuesses(ctx, st, alice, since))(t), c.want)
			same(t, must.Get(store.OAuthGuesses(ctx, st, bob, since))(t), int64(0))
		}
		must.Get(store.DropOAuthGrants(ctx, st, noon.Add(time.Hour), 10))(t)
		_, err := store.OAuthDeviceByHash(ctx, st, d.Hash)
		notFound(t, err)
		same(t, must.Get(store.OAuthGuesses(ctx, st, alice, noon))(t), int64(0))
	})
}

// TestReview5_LastAccess: what was issued last is known as the last, by whichever process: their clocks differ, and a renewal
// may follow at once.
func TestReview5_LastAccess(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		grant := toll.NewHash()
		for _, at := range []time.Time{noon, noon.Add(-time.Second), noon.Add(-time.Second), noon.Add(time.Second)} {
			last := toll.NewHash()
			write(t, st, func(tx *store.Tx) error { return store.InsertOAuthAccess(ctx, tx, last, grant, at) })
			same(t, must.Get(store.OAuthAccess(ctx, st, grant, 1))(t), []toll.Hash{last})
		}
	})
}
