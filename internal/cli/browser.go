package cli

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
)

// browse opens a page in the browser of the person. BROWSER names another program.
func (a *app) browse(ctx context.Context, page string) error {
	u, err := httpURL(page)
	if err != nil {
		return errors.New("the service named no page that a browser could open") // and is not asked to start anything else
	}
	words := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		words = []string{"open"}
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if own := a.getenv("BROWSER"); own != "" {
		words = []string{own}
	}
	if err := exec.CommandContext(context.WithoutCancel(ctx), words[0], append(words[1:], u.String())...).Start(); err != nil {
		a.say("note", "no browser could be started: open the page yourself")
	}
	return nil
}
