package gateway

import (
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// account is a key in use with the settings that apply to it. It is immutable: a login, a logout
// or another configuration make a new one.
type account struct {
	settings
	service     *client.Client
	environment toll.Environment
	address     toll.Address
	loginEnds   time.Time // of a key of the browser login; zero for others
}

// account returns the account of the core, or [NotAuthenticated].
func (c *Core) account() (*account, error) { panic("G4") }
