package toll

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// AccessLimit is the resource that limits the use of a plan: credits or time.
type AccessLimit string

// Access limits.
const (
	LimitCredits AccessLimit = "credits" // every request burns credits
	LimitTime    AccessLimit = "time"    // requests burn nothing while the period runs
)

// AccessLimits returns the names of the access limits that a plan can have.
func AccessLimits() []string { return []string{string(LimitCredits), string(LimitTime)} }

// Usual lengths of plans, in seconds. MonthSecs is an average Gregorian month; YearSecs is 365.25 days.
const (
	DaySecs   = 86_400
	WeekSecs  = 604_800
	MonthSecs = 2_629_746
	YearSecs  = 31_557_600
)

// RedemptionSubscriber is the default redemption type: the subscriber's access token authorizes the burn.
const RedemptionSubscriber = 4

// CreditsConfig sets the credits that an order grants and a request burns, in the stored form (wire contract, section 8, dialect B).
type CreditsConfig struct {
	IsRedemptionAmountFixed bool     `json:"isRedemptionAmountFixed"` // true: every request burns MinAmount, and MaxAmount is equal
	RedemptionType          int      `json:"redemptionType"`          // 0 global role, 1 owner, 2 plan role, 4 subscriber; recorded only
	OnchainMirror           bool     `json:"onchainMirror"`
	DurationSecs            Units    `json:"durationSecs"` // life of a bought lot in seconds, 0 = no end
	Amount                  Credits  `json:"amount"`       // credits per order, >= 1
	MinAmount               Credits  `json:"minAmount"`    // bounds per request, 1 <= min <= max
	MaxAmount               Credits  `json:"maxAmount"`
	NFTAddress              *Address `json:"nftAddress,omitempty"` // accepted and returned, unused
}

// RedemptionInput is a redemption type in a request: 0, 1, 2, or 4 as a number or a string, or the word fixed or dynamic.
type RedemptionInput struct {
	Type int
	Word string // "fixed" or "dynamic", which also set the flag isRedemptionAmountFixed; "" for a number
}

// UnmarshalJSON accepts these forms, and words in any case. Other values are an error with [CodeBadRequest].
func (r *RedemptionInput) UnmarshalJSON(b []byte) error {
	switch s := strings.ToLower(jsonDigits(b)); s {
	case "null":
	case "0", "1", "2", "4":
		*r = RedemptionInput{Type: int(s[0] - '0')}
	case "fixed", "dynamic":
		*r = RedemptionInput{Type: RedemptionSubscriber, Word: s}
	default:
		return Errorf(CodeBadRequest, "A redemption type must be 0, 1, 2, 4, fixed, or dynamic.").WithDetails("value %s", clip(s))
	}
	return nil
}

// MarshalJSON writes the word, or the number if Word is empty.
func (r RedemptionInput) MarshalJSON() ([]byte, error) {
	if r.Word != "" {
		return strconv.AppendQuote(nil, r.Word), nil
	}
	return strconv.AppendInt(nil, int64(r.Type), 10), nil
}

// LimitInput is accessLimit in a request. A word is the access limit. A number is the maximum number of orders, the older
// meaning of the member.
type LimitInput struct {
	Limit     AccessLimit // "" when a number was sent
	MaxOrders *Int
}

// UnmarshalJSON takes an access limit in any case, a JSON integer or a decimal string.
func (l *LimitInput) UnmarshalJSON(b []byte) error {
	switch s := strings.ToLower(jsonDigits(b)); {
	case s == "null":
	case slices.Contains(AccessLimits(), s):
		*l = LimitInput{Limit: AccessLimit(s)}
	default:
		if s == "" || s[0] < '0' || s[0] > '9' {
			return Errorf(CodeBadRequest, "accessLimit must be %s, or a number: the maximum number of orders.", strings.Join(AccessLimits(), ", ")).
				WithDetails("value %s", clip(s))
		}
		var n Int
		if err := n.UnmarshalJSON(b); err != nil {
			return err
		}
		*l = LimitInput{MaxOrders: &n}
	}
	return nil
}

// MarshalJSON writes the number when one is set, else the word.
func (l LimitInput) MarshalJSON() ([]byte, error) {
	if l.MaxOrders != nil {
		return strconv.AppendInt(nil, int64(*l.MaxOrders), 10), nil
	}
	return strconv.AppendQuote(nil, string(l.Limit)), nil
}

// CreditsInput is a credits configuration in a request, in any dialect. A nil member was absent or null.
type CreditsInput struct {
	// All dialects.
	Amount *Credits `json:"amount,omitzero"`
	// Dialects A and B.
	MinAmount *Credits `json:"minAmount,omitzero"`
	// Dialect A: FIXED or EXPIRABLE, and seconds.
	CreditsType       *string `json:"creditsType,omitzero"`
	DurationOfThePlan *Units  `json:"durationOfThePlan,omitzero"`
	// Dialect B.
	IsRedemptionAmountFixed *Bool            `json:"isRedemptionAmountFixed,omitzero"`
	RedemptionType          *RedemptionInput `json:"redemptionType,omitzero"`
	OnchainMirror           *Bool            `json:"onchainMirror,omitzero"`
	DurationSecs            *Units           `json:"durationSecs,omitzero"`
	MaxAmount               *Credits         `json:"maxAmount,omitzero"`
	NFTAddress              *Address         `json:"nftAddress,omitzero"`
	// File of the command line: both words are credits or time, duration is in seconds.
	SubscriptionType   *string  `json:"subscriptionType,omitzero"`
	AccessType         *string  `json:"accessType,omitzero"`
	MinCreditsToCharge *Credits `json:"minCreditsToCharge,omitzero"`
	MaxCreditsToCharge *Credits `json:"maxCreditsToCharge,omitzero"`
	Duration           *Units   `json:"duration,omitzero"`
}

// Warnings returns a warning when a fixed plan is stored with its minimum instead of the higher maximum that deployed
// clients send with every plan. stored is the stored form of in.
func (in CreditsInput) Warnings(stored CreditsConfig) []Warning {
	most := orZero(cmp.Or(in.MaxAmount, in.MaxCreditsToCharge))
	if most <= stored.MaxAmount {
		return nil
	}
	return []Warning{{Code: CodeBadCreditsConfig, Message: fmt.Sprintf(
		"Every request of a fixed plan burns the minimum, so the maximum of %d is stored as %d. For a range, set isRedemptionAmountFixed to false.",
		most, stored.MaxAmount)}}
}

// normalizeCredits returns the stored form of a credits configuration in any dialect, and the access limit. limit is the
// access limit in the body; when it is "", the result is derived. Members of dialect B override dialect A, which overrides
// the file. fileAmount is amountOfCredits of a price file.
func normalizeCredits(in CreditsInput, fileAmount *Credits, limit AccessLimit, path string, f *faultList) (CreditsConfig, AccessLimit) {
	bad := func(member, format string, args ...any) {
		f.contradiction(CodeBadCreditsConfig, at(path, member), format, args...)
	}
	kind := creditsKind(in, path, f)
	file := fileLimit(in, path, f)
	if file == LimitTime {
		fileAmount = nil
	}
	one := Credits(1).Ptr()
	c := CreditsConfig{
		RedemptionType: RedemptionSubscriber, OnchainMirror: in.OnchainMirror != nil && bool(*in.OnchainMirror),
		Amount: *cmp.Or(in.Amount, fileAmount, one), MinAmount: *cmp.Or(in.MinAmount, in.MinCreditsToCharge, one), NFTAddress: in.NFTAddress,
	}
	c.MaxAmount = *cmp.Or(in.MaxAmount, in.MaxCreditsToCharge, &c.MinAmount)

	switch {
	case in.DurationSecs != nil:
		c.DurationSecs = *in.DurationSecs
	case kind == "EXPIRABLE":
		c.DurationSecs = orZero(in.DurationOfThePlan)
	case kind == "" && file != LimitCredits:
		c.DurationSecs = orZero(in.Duration)
	}
	if kind == "EXPIRABLE" && c.DurationSecs.IsZero() {
		bad("durationOfThePlan", "creditsType EXPIRABLE requires a duration above 0.")
	}
	if file == LimitTime && c.DurationSecs.IsZero() {
		bad("duration", "A time plan requires a duration above 0.")
	}

	limit = cmp.Or(limit, file)
	if limit == "" {
		limit = LimitCredits
		if !c.DurationSecs.IsZero() {
			limit = LimitTime
		}
	}
	fixed := Bool(c.MinAmount == c.MaxAmount && limit.Kind().Charges() && kind != "EXPIRABLE")
	c.IsRedemptionAmountFixed = bool(*cmp.Or(in.IsRedemptionAmountFixed, &fixed))
	if r := in.RedemptionType; r != nil {
		c.RedemptionType = r.Type
		if r.Word != "" {
			c.IsRedemptionAmountFixed = r.Word == "fixed"
		}
	}

	for _, n := range []struct {
		member string
		value  Credits
	}{{"amount", c.Amount}, {"minAmount", c.MinAmount}, {"maxAmount", c.MaxAmount}} {
		if n.value < 1 {
			f.contradiction(CodeBadNumber, at(path, n.member), "%s must be at least 1.", n.member)
		}
	}
	if c.MinAmount > c.MaxAmount {
		bad("maxAmount", "The maximum amount must be at least the minimum amount.")
	}
	if limit == LimitTime && c.DurationSecs.IsZero() {
		bad("durationSecs", "A time plan requires a duration above 0.")
	}
	if limit == LimitTime && c.IsRedemptionAmountFixed {
		bad("isRedemptionAmountFixed", "A time plan burns no credits per request: isRedemptionAmountFixed must be false.")
	}
	if c.IsRedemptionAmountFixed && c.MaxAmount > c.MinAmount {
		c.MaxAmount = c.MinAmount // see [CreditsInput.Warnings]
	}
	return c, limit
}

// creditsKind returns FIXED or EXPIRABLE, or "" when dialect A does not set it.
func creditsKind(in CreditsInput, path string, f *faultList) string {
	if in.CreditsType == nil {
		if in.DurationOfThePlan != nil && !in.DurationOfThePlan.IsZero() {
			return "EXPIRABLE"
		}
		return ""
	}
	word := strings.ToUpper(*in.CreditsType)
	if word != "FIXED" && word != "EXPIRABLE" {
		f.add(at(path, "creditsType"), "must be FIXED or EXPIRABLE")
		return "FIXED"
	}
	return word
}

// fileLimit returns the access limit in subscriptionType or accessType of a credits file, or "" when both are absent.
func fileLimit(in CreditsInput, path string, f *faultList) AccessLimit {
	var limit AccessLimit
	for _, w := range []struct {
		member string
		value  *string
	}{{"subscriptionType", in.SubscriptionType}, {"accessType", in.AccessType}} {
		if w.value == nil {
			continue
		}
		l := AccessLimit(strings.ToLower(*w.value))
		switch {
		case !slices.Contains(AccessLimits(), string(l)):
			f.add(at(path, w.member), "must be %s", strings.Join(AccessLimits(), " or "))
		case limit != "" && l != limit:
			f.contradiction(CodeBadCreditsConfig, at(path, w.member), "subscriptionType and accessType must be equal.")
		default:
			limit = l
		}
	}
	return limit
}
