package rails

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

const (
	// settingDouble holds the sealed keys of the double, and where it listened last.
	settingDouble = store.SettingCardDouble
	doubleAAD     = "toll/card-double"
	doubleFile    = "card-double.json" // its state, in the data directory
)

// doubleSetting is what the double has from the first start on.
type doubleSetting struct {
	Key     string `json:"key"`     // secret key
	Secret  string `json:"secret"`  // of its webhooks
	Account string `json:"account"` // stays the same when its file is lost, as after a restored backup
	Listen  string `json:"listen"`  // host:port, so that pages which are open survive a restart
}

// runningDouble is the double of Stripe in this process, on a loopback listener of its own.
type runningDouble struct {
	keys cardKeys
	url  string
}

// startDouble starts the double of a data directory. It ends with the group of the service. When its file cannot be written it is
// tried again: the rest of the service does not need it.
func startDouble(ctx context.Context, listen string, deps *Deps) (*runningDouble, error) {
	set, err := deps.doubleSetting(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the keys of the card double: %w", err)
	}
	ln, err := listenOn(ctx, listen, set.Listen)
	if err != nil {
		return nil, err
	}
	deps.Jobs.OnStop("card double", func(context.Context) error {
		_ = ln.Close() // it is closed already unless the double never ran
		return nil
	})
	d := &runningDouble{url: "http://" + ln.Addr().String()}
	d.keys = cardKeys{secret: set.Key, publishable: "pk_test_double", webhook: []string{set.Secret}}
	o := double.Options{
		Now: deps.Machine, File: filepath.Join(deps.Data, doubleFile), SecretKey: set.Key, Account: set.Account, PublicURL: d.url,
		Webhooks: []double.Webhook{{URL: deps.Listen + deps.Webhook, Secrets: []string{set.Secret}}}, Logger: deps.Log,
	}
	deps.Jobs.Start(jobs.Loop{Name: "card.double", Every: retryEvery, Run: jobs.Do(func(ctx context.Context) error { return serveDouble(ctx, ln, o) })})
	if set.Listen != ln.Addr().String() {
		set.Listen = ln.Addr().String()
		if err := deps.putDouble(ctx, set); err != nil {
			deps.Log.WarnContext(ctx, "cannot save the address of the card double, which may change after a restart", "err", err)
		}
	}
	deps.Log.InfoContext(ctx, "card double", "url", d.url, "file", doubleFile)
	return d, nil
}

// serveDouble runs a double until ctx ends.
func serveDouble(ctx context.Context, ln net.Listener, o double.Options) error {
	d, err := double.New(o)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Serve(ctx, ln)
}

// listenOn listens on an address, else where the double listened last, else on a free port of this machine.
func listenOn(ctx context.Context, wanted, last string) (net.Listener, error) {
	var c net.ListenConfig
	ln, err := c.Listen(ctx, "tcp", cmp.Or(wanted, last, "127.0.0.1:0"))
	if err != nil && wanted == "" { // somebody else has the port by now
		ln, err = c.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("card double: %w: fix %s", err, setDoubleListen)
	}
	return ln, nil
}

// doubleSetting returns the keys of the double, which the first start makes.
func (d *Deps) doubleSetting(ctx context.Context) (set doubleSetting, err error) {
	sealed, err := store.Setting(ctx, d.Store, settingDouble)
	if errors.Is(err, store.ErrNotFound) {
		set = doubleSetting{Key: "sk_test_" + random(), Secret: "whsec_" + random(), Account: "acct_" + random()[:16]}
		return set, d.putDouble(ctx, set)
	}
	if err != nil {
		return set, err
	}
	text, err := d.Ring.Open(sealed, []byte(doubleAAD))
	if err == nil {
		err = json.Unmarshal(text, &set)
	}
	return set, err
}

func (d *Deps) putDouble(ctx context.Context, set doubleSetting) error {
	text, err := json.Marshal(set)
	if err != nil {
		return err
	}
	sealed, err := d.Ring.Seal(text, []byte(doubleAAD))
	if err != nil {
		return err
	}
	return d.Store.Tx(ctx, func(tx *store.Tx) error { return store.PutSetting(ctx, tx, settingDouble, sealed) })
}

// DoubleOf is what the sealed keys of the double are bound to.
func DoubleOf() []byte { return []byte(doubleAAD) }

// random returns 128 random bits in hexadecimal.
func random() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // which never fails
	return hex.EncodeToString(b)
}
