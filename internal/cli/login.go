package cli

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/server"
)

const (
	// signInTime is how long a person may take.
	signInTime = 5 * time.Minute
	// signInClient is how the keys of sign-ins are named.
	signInClient = "toll-cli"
	// settingSignedIn is the id of the key that a sign-in created. Logout revokes the key of a profile only if it still has this id.
	settingSignedIn = "signedInKeyId"
)

// signInCommands are login, logout and whoami.
func signInCommands(a *app) []*cobra.Command {
	login, logout := loginCommand(a), logoutCommand(a)
	for _, c := range []*cobra.Command{login, logout} {
		c.Annotations = withoutProfile // they work on a profile that is not there yet
	}
	return []*cobra.Command{login, logout, whoamiCommand(a)}
}

func loginCommand(a *app) *cobra.Command {
	var environment string
	var noBrowser, device bool
	c := command("login", "Sign in with a browser and store an API key", nil)
	c.Long = `Sign in with a browser, as a person or by pasting an API key of your workspace. This program then gets its own API key, valid for
90 days, and stores it in the active profile. The browser sends this program a one-time code, never a key.

The new key has your rights, or the rights of the pasted key, except members and export. With --device, it has at most read, sell, spend,
and manage. It stops working when your membership or the pasted key ends.

With --device, the browser can be on another computer: this program shows a code to enter there, and waits. This is the default
where there is no display.`
	c.Example = "toll login\ntoll login --device\ntoll login --url https://pay.example.com -p work --no-browser"
	c.Flags().StringVarP(&environment, "environment", "e", "", "expected environment, sandbox or live; the sign-in fails in another environment")
	c.Flags().BoolVar(&noBrowser, "no-browser", false, "print the address of the page instead of opening a browser")
	c.Flags().BoolVar(&device, "device", false, "show a code to enter in a browser on any computer")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if noBrowser && device {
			return usagef("set --no-browser or --device, not both")
		}
		ask := func(ctx context.Context, service *client.Client) (string, time.Duration, error) {
			if device || !noBrowser && a.headless() {
				return askDevice(ctx, a, service)
			}
			return askBrowser(ctx, &a.console, service, noBrowser)
		}
		return signIn(cmd.Context(), a, strings.ToLower(environment), ask)
	}
	return c
}

type signedIn struct {
	Path        string           `json:"path"`
	Profile     string           `json:"profile"`
	Environment toll.Environment `json:"environment"`
	URL         string           `json:"url"`
	Address     toll.Address     `json:"address"`
	ExpiresAt   toll.Time        `json:"expiresAt"`
}

// signIn stores the API key that ask gets from a person.
func signIn(ctx context.Context, a *app, environment string, ask func(context.Context, *client.Client) (string, time.Duration, error)) error {
	if err := checkSetting(settingEnvironment, environment); err != nil {
		return err
	}
	config, err := a.openConfig()
	if err != nil {
		return err
	}
	name := a.active(config)
	a.set.url = cmp.Or(a.flags.url, a.getenv("TOLL_URL"), config.profiles[name].text(settingURL))
	service := a.client()
	info, err := service.Info(ctx)
	if err != nil {
		return err
	}
	if environment != "" && string(info.Environment) != environment {
		return fmt.Errorf("the service at %s runs in %s, not in %s", service.URL(), info.Environment, environment)
	}

	key, life, err := ask(ctx, service)
	if err != nil {
		return err
	}
	claims, err := client.ReadKey(key)
	if err != nil {
		return err
	}
	p := config.profile(name)
	p.set(settingKey, key)
	p.set(settingEnvironment, string(info.Environment))
	p.set(settingURL, service.URL())
	p.set(settingSignedIn, claims.ID.String())
	if config.top.text("activeProfile") == "" {
		config.top.set("activeProfile", name)
	}
	if err := config.save(); err != nil {
		return err
	}
	if a.getenv("TOLL_API_KEY") != "" {
		a.say("warning", "TOLL_API_KEY is set and overrides the profile")
	}
	hintUse(&a.console, config, name)
	ends := toll.At(time.Now().Add(life).UTC().Truncate(time.Second))
	a.set.key = key
	address, err := a.client().Address(ctx)
	if err != nil {
		return fmt.Errorf("you are signed in, but the service did not name the workspace: %w", err)
	}
	return a.show(signedIn{config.path, name, info.Environment, service.URL(), address, ends})
}

// askBrowser gets a key through a browser of this computer.
func askBrowser(ctx context.Context, con *console, service *client.Client, noBrowser bool) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, signInTime)
	defer cancel()
	in, code, err := askPerson(ctx, con, service, noBrowser)
	if err != nil {
		return "", 0, err
	}
	return service.ExchangeCode(ctx, in, code)
}

// askPerson opens the page of a sign-in and returns the code that its callback gets.
func askPerson(ctx context.Context, con *console, service *client.Client, noBrowser bool) (*client.SignIn, string, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("listen for the sign-in callback: %w", err)
	}
	in := client.NewSignIn("http://"+ln.Addr().String()+"/callback", signInClient)
	codes := make(chan string, 1)
	s := &http.Server{Handler: callback(in, ln.Addr().String(), codes), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	end := background(ctx, func(ctx context.Context) error { return server.ServeUntil(ctx, s, ln, time.Second) })
	defer func() { _ = end() }() // the page has its response, or the sign-in was given up

	page := in.URL(service)
	con.say("", "Sign in at %s", page)
	if !noBrowser {
		if err := browse(ctx, con, page); err != nil {
			return nil, "", err
		}
	}
	select {
	case code := <-codes:
		return in, code, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, "", errors.New("the sign-in was not completed within 5 minutes: run toll login again")
		}
		return nil, "", ctx.Err()
	}
}

// callback accepts one response to a sign-in. Other programs and web pages on this computer can reach it too, but do not know the state.
func callback(in *client.SignIn, host string, codes chan<- string) http.Handler {
	var done atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		q := r.URL.Query()
		switch {
		case r.URL.Path != "/callback" || r.Host != host:
			http.Error(w, "Not found.", http.StatusNotFound)
		case r.Method != http.MethodGet:
			http.Error(w, "Only GET is allowed.", http.StatusMethodNotAllowed)
		case len(q["state"]) != 1 || len(q["code"]) != 1 || q.Get("code") == "" ||
			subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(in.State)) != 1:
			http.Error(w, "This request does not match the pending sign-in.", http.StatusBadRequest)
		case !done.CompareAndSwap(false, true):
			http.Error(w, "This sign-in is already complete.", http.StatusGone)
		default:
			codes <- q.Get("code")
			http.Error(w, "Signed in. You can close this page.", http.StatusOK)
		}
	})
}

func logoutCommand(a *app) *cobra.Command {
	var all bool
	c := command("logout", "Remove the API key from the active profile", nil)
	c.Long = "Remove the API key from the active profile. A key that a sign-in created is also revoked; a key that you set yourself stays valid."
	c.Flags().BoolVar(&all, "all-profiles", false, "remove the API keys from all profiles")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := a.openConfig()
		if err != nil {
			return err
		}
		name, err := a.named(config)
		if err != nil && !all {
			return err
		}
		names := []string{name}
		if all {
			names = config.names()
		}
		for _, name := range names {
			p := config.profiles[name]
			if p.text(settingKey) == "" {
				continue
			}
			endKey(cmd.Context(), a, name, p)
			delete(p, settingKey)
			delete(p, settingSignedIn)
		}
		if len(config.profiles) > 0 {
			if err := config.save(); err != nil {
				return err
			}
		}
		if a.getenv("TOLL_API_KEY") != "" {
			a.say("warning", "TOLL_API_KEY is still set, so commands keep using that API key")
		}
		return a.show(map[string]any{"path": config.path, "profiles": names})
	}
	return c
}

// endKey revokes the key of a profile if a sign-in created it. If the service cannot be reached, it warns, and the sign-out continues.
func endKey(ctx context.Context, a *app, name string, p document) {
	c, err := client.ReadKey(p.text(settingKey))
	if err != nil || c.ID.String() != p.text(settingSignedIn) {
		return
	}
	a.set.key, a.set.url = p.text(settingKey), p.text(settingURL)
	_, err = a.client().RevokeKey(ctx, c.ID)
	if e := toll.AsError(err); err != nil && e.HTTPStatus() != http.StatusUnauthorized {
		a.say("warning", "the key of profile %s could not be revoked: %s", name, e.Text())
	}
}

type identity struct {
	Profile     string           `json:"profile"` // that of the configuration; a flag or the environment may have brought the key
	URL         string           `json:"url"`
	Environment toll.Environment `json:"environment"`
	Address     toll.Address     `json:"address"`
	KeyID       toll.Hash        `json:"keyId"`
	KeyName     *string          `json:"keyName"`
	Version     string           `json:"version"` // pinned API version
	ExpiresAt   *toll.Time       `json:"expiresAt"`
}

func whoamiCommand(a *app) *cobra.Command {
	return command("whoami", "Show the current API key and its workspace", func(cmd *cobra.Command, _ []string) error {
		if a.set.key == "" {
			return toll.NewError(toll.CodeNotAuthenticated).WithHint("Sign in with toll login, or set TOLL_API_KEY.")
		}
		c, err := client.ReadKey(a.set.key)
		if err != nil {
			return err
		}
		service := a.client()
		key, err := service.Key(cmd.Context(), c.ID)
		if err != nil {
			return err
		}
		info, err := service.Info(cmd.Context())
		if err != nil {
			return err
		}
		profile := ""
		if config, err := a.openConfig(); err == nil { // without a file the key came from elsewhere
			profile = a.active(config)
		}
		return a.show(identity{profile, service.URL(), info.Environment, key.Address, key.ID, key.Name, key.Version, key.ExpiresAt})
	})
}

// browse opens a page in the browser of the person. BROWSER names another program.
func browse(ctx context.Context, con *console, page string) error {
	u, err := httpURL(page)
	if err != nil {
		return errors.New("the service returned a page address that a browser cannot open") // never start another program with it
	}
	words := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		words = []string{"open"}
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if own := con.getenv("BROWSER"); own != "" {
		words = []string{own}
	}
	if err := exec.CommandContext(context.WithoutCancel(ctx), words[0], append(words[1:], u.String())...).Start(); err != nil {
		con.say("note", "could not start a browser: open the page yourself")
	}
	return nil
}
