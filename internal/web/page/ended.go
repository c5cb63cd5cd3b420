package page

import (
	"strings"

	"github.com/tollhq/toll"
)

// EndedText confirms that the access of an app was revoked, with everything that was revoked with it.
func EndedText(e toll.Ended) string {
	return "Access revoked." + EndedWith(e)
}

// EndedWith returns a sentence, after a space, that counts what was revoked too; "" for nothing.
func EndedWith(e toll.Ended) string {
	var also []string
	for _, of := range []struct {
		n    int64
		what string
	}{{e.APIKeys, "API key"}, {e.AccessTokens, "access token"}, {e.Grants, "connected app"}} {
		if of.n > 0 {
			also = append(also, Count(of.n, of.what))
		}
	}
	if len(also) == 0 {
		return ""
	}
	return " Also revoked: " + strings.Join(also, ", ") + "."
}
