package server_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// F28: of three orders that a wallet paid, a restored backup has one. The service finds the payments of
// the others by the wallet, an operator grants each, once, and the books agree with the chain.
// F28
func TestChainAfterRestore(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t), Metrics: true}
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "backup")
	var builder, subscriber toll.APIKey
	var plan toll.PlanID
	buy := func(c *stand) {
		t.Helper()
		if res, err := c.subscriber.OrderPlan(ctx, plan); err != nil || res.TxHash == "" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	t.Run("before", func(t *testing.T) {
		s, url := start(t, cfg)
		builder, subscriber = keys(t, s)
		c := newStand(t, url, builder, subscriber, 0).patient
		plan = c.plan
		faucet(t, c.subscriber, "5")
		buy(c)
		must.Get(server.Backup(ctx, cfg, path))(t)
		buy(c)
		buy(c)
	})
	restored := server.Config{
		Data: filepath.Join(t.TempDir(), "restored"), MasterKeyFile: filepath.Join(cfg.Data, "master.key"), Metrics: true,
	}
	must.Get(server.Restore(ctx, restored, path))(t)
	must.Do(t, os.CopyFS(filepath.Join(restored.Data, "chain"), os.DirFS(filepath.Join(cfg.Data, "chain"))))
	unread := regexp.MustCompile(`the service has not read the (events of the card processor|chain) since the restore: start toll serve and wait`)
	if err := admin.EndRecovery(ctx, restored); err == nil || !unread.MatchString(err.Error()) {
		t.Errorf("the mark was removed before the rails were read: %v", err)
	}
	_, url := start(t, restored)
	c := (&stand{owner: builder.Address, buyer: subscriber.Address, plan: plan}).on(url, builder, subscriber).patient
	var found []rails.Unmatched
	eventually(t, "the lost payments are listed", func() bool {
		var err error
		if found, err = admin.UnmatchedPayments(ctx, restored); err != nil {
			t.Fatal(err)
		}
		return len(found) == 2
	})
	for _, u := range found {
		if u.Rail != "crypto" || u.Subscriber == nil || *u.Subscriber != subscriber.Address || len(u.Paid) == 0 ||
			u.Amount != "1.00" || u.Currency != "USDC" || u.Token != u.Paid[0].Token.String() || u.Receiver != builder.Address.String() {
			t.Errorf("%+v", u)
		}
	}
	resolve := func(u rails.Unmatched, how string, plan toll.PlanID) error {
		_, err := admin.ResolvePayment(ctx, restored, admin.Resolve{ID: u.ID, How: how, Plan: plan})
		return err
	}
	if err := resolve(found[0], admin.Granted, ""); err == nil || !strings.Contains(err.Error(), "--plan") {
		t.Errorf("granted without a plan: %v", err)
	}
	if err := resolve(found[0], admin.Refunded, ""); err == nil || !strings.Contains(err.Error(), "--settled") {
		t.Errorf("refunded by the service: %v", err)
	}
	for range 2 { // a repeat changes nothing
		must.Do(t, resolve(found[0], admin.Granted, plan))
	}
	must.Do(t, resolve(found[1], admin.Granted, plan))
	if b := c.balance(t); b.Balance != 300 {
		t.Errorf("%d credits", b.Balance)
	}
	eventually(t, "the mark can be removed", func() bool { return admin.EndRecovery(ctx, restored) == nil })
	if r, err := admin.ShowRecovery(ctx, restored); err != nil || r.Restored {
		t.Errorf("%+v, %v", r, err)
	}
	if findings, err := auditBooks(ctx, restored); err != nil || len(findings) > 0 {
		t.Errorf("%+v, %v", findings, err)
	}
}
