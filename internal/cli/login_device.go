package cli

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// askDevice gets a key through a browser on any computer, in which the person enters the code that this program shows.
func askDevice(ctx context.Context, a *app, service *client.Client) (string, time.Duration, error) {
	d, err := service.StartDevice(ctx, signInClient)
	if err != nil {
		return "", 0, err
	}
	a.say("", "Open %s and enter the code %s", d.URL, d.UserCode)
	ctx, cancel := context.WithTimeout(ctx, d.ExpiresIn)
	defer cancel()
	for {
		if err := a.wait(ctx, d.Interval); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return "", 0, errors.New("the device code expired before it was approved: run toll login again")
			}
			return "", 0, err
		}
		key, life, err := service.ExchangeDevice(ctx, d)
		switch e := toll.AsError(err); {
		case err == nil:
			return key, life, nil
		case errors.Is(err, client.ErrUndecided):
		case e.Params["error"] == "access_denied":
			return "", 0, errors.New("the sign-in was denied in the browser")
		case e.Params["error"] == "expired_token":
			return "", 0, errors.New("the device code expired before it was approved: run toll login again")
		default:
			return "", 0, err
		}
	}
}

// wait waits for d, or until ctx ends.
func (a *app) wait(ctx context.Context, d time.Duration) error {
	if a.pause != nil {
		return a.pause(ctx, d)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// headless reports whether this machine probably cannot start a browser.
func (con *console) headless() bool {
	return runtime.GOOS == "linux" && con.getenv("DISPLAY") == "" && con.getenv("WAYLAND_DISPLAY") == "" && con.getenv("BROWSER") == ""
}
