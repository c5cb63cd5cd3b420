package cli

import (
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
)

func clockCommand(a *app) *cobra.Command {
	return group("clock", "The clock of a sandbox, for tests of expiry", "",
		a.get("show", "Show the time of the service", "/sandbox/clock"),
		command("advance DURATION", "Move the clock forward by seconds or a duration such as 36h; needs the API key of an operator", func(cmd *cobra.Command, args []string) error {
			return clockAdvance(a, cmd, args)
		}),
	)
}

func clockAdvance(a *app, cmd *cobra.Command, args []string) error {
	d, err := parseSeconds(args[0])
	if err != nil {
		return usagef("DURATION must be whole seconds or a duration such as 36h")
	}
	got, err := a.call(cmd.Context(), http.MethodPost, "/sandbox/clock", nil, body{"advanceSecs": int64(d / time.Second)})
	if e, ok := errors.AsType[*toll.Error](err); ok && e.Code == toll.CodeForbidden {
		return e.WithHint("On the machine of the service, toll keys create --local --operator --account NAME --data DIR -q creates an API key of an operator: set it as TOLL_API_KEY.")
	}
	if err != nil {
		return err
	}
	return a.show(got)
}
