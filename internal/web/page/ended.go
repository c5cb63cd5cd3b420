package page

import (
	"strconv"
	"strings"

	"github.com/tollhq/toll"
)

// EndedText says what ended with the access of a program.
func EndedText(e toll.Ended) string {
	return "The access is revoked." + EndedWith(e)
}

// EndedWith is a sentence on what ended with something, after a blank; "" for nothing.
func EndedWith(e toll.Ended) string {
	var also []string
	for _, of := range []struct {
		n    int64
		what string
	}{{e.APIKeys, "API key"}, {e.AccessTokens, "access token"}, {e.Grants, "access of another program"}} {
		switch {
		case of.n == 1:
			also = append(also, "1 "+of.what)
		case of.n > 1:
			also = append(also, strconv.FormatInt(of.n, 10)+" × "+of.what)
		}
	}
	if len(also) == 0 {
		return ""
	}
	return " With it ended: " + strings.Join(also, ", ") + "."
}
