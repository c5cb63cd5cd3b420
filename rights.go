package toll

import (
	"slices"
	"strings"
)

// Right is a permission of an API key. Each route of the service requires one right or is public.
type Right string

// Rights.
const (
	RightRead    Right = "read"    // every read of own records
	RightSell    Right = "sell"    // verify, settle, release, sub-tasks, offers
	RightSpend   Right = "spend"   // access tokens, orders, delegations, payment methods, faucet
	RightManage  Right = "manage"  // agents, plans, webhooks, mint, publish
	RightMoney   Right = "money"   // refunds, take back, payouts, exports of orders
	RightKeys    Right = "keys"    // create and revoke API keys, connect programs
	RightMembers Right = "members" // people of the workspace
	RightExport  Right = "export"  // the private key of the wallet
)

// Rights is a set of rights, without repeats, in the order of [AllRights].
type Rights []Right

// AllRights returns every right.
func AllRights() Rights {
	return Rights{
		RightRead, RightSell, RightSpend, RightManage, RightMoney, RightKeys, RightMembers, RightExport,
	}
}

// ProgramRights returns the rights that a person can give a program by OAuth.
func ProgramRights() Rights { return Rights{RightRead, RightSell, RightSpend, RightManage} }

// ParseRights returns the set of rights named by words. An unknown word is an error with [CodeBadRequest].
func ParseRights(words []string) (Rights, error) {
	all := AllRights()
	for _, w := range words {
		if !slices.Contains(all, Right(w)) {
			return nil, Faults([]Fault{{
				Path:    "rights",
				Message: "must contain only these rights: " + all.String() + "; got " + limited(w),
			}})
		}
	}
	return slices.DeleteFunc(all, func(r Right) bool { return !slices.Contains(words, string(r)) }), nil
}

// limited returns at most the first 32 bytes of w in quotes.
func limited(w string) string { return "'" + strings.ToValidUTF8(w[:min(len(w), 32)], "") + "'" }

// Has reports whether a right is in the set.
func (r Rights) Has(right Right) bool { return slices.Contains(r, right) }

// Missing returns the first right of r that the set in lacks, or "".
func (r Rights) Missing(in Rights) Right {
	for _, right := range r {
		if !in.Has(right) {
			return right
		}
	}
	return ""
}

// Within returns the rights that are in both sets.
func (r Rights) Within(other Rights) Rights {
	return slices.DeleteFunc(slices.Clone(r), func(right Right) bool { return !other.Has(right) })
}

// String returns the rights separated by spaces.
func (r Rights) String() string {
	words := make([]string, len(r))
	for i, right := range r {
		words[i] = string(right)
	}
	return strings.Join(words, " ")
}

// KeyMaker is the way in which an API key was created.
type KeyMaker string

// Makers of API keys.
const (
	MadeLocally KeyMaker = "local" // on the database itself, by the operator
	MadeByUser  KeyMaker = "user"  // by a signed-in person, for their program
	MadeByKey   KeyMaker = "key"   // by another API key
	MadeByGrant KeyMaker = "grant" // by the consent to a program
)

// Ended counts the keys, access tokens, and grants that ended with an API key or a consent, or that were kept.
type Ended struct {
	APIKeys      int64 `json:"apiKeys"`
	AccessTokens int64 `json:"accessTokens"`
	Grants       int64 `json:"grants"`
}

// KeyRotated is the response to the rotation of an API key: the new key, including its text.
type KeyRotated struct {
	APIKey
	PreviousID     Hash  `json:"previousId"`
	PreviousEndsAt Time  `json:"previousEndsAt"` // both keys work until then
	Moved          Moved `json:"moved"`          // children of the old key, now children of the new key
}

// Moved counts the records with a new parent. Access tokens move too but are not counted.
type Moved struct {
	APIKeys int64 `json:"apiKeys"`
	Grants  int64 `json:"grants"`
}

// KeyRevoked is the response to the revocation of an API key.
type KeyRevoked struct {
	Success bool             `json:"success"`
	ID      Hash             `json:"id"`
	Status  PermissionStatus `json:"status"`
	Ended   Ended            `json:"ended"`         // children of the key that ended with it
	Kept    *Ended           `json:"kept,omitzero"` // children that got another parent
}
