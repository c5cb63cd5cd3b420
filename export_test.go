package toll

// NormalizeCredits normalizes the credits of a registration.
func NormalizeCredits(in CreditsInput, fileAmount *Credits) (CreditsConfig, AccessLimit, error) {
	var f faultList
	c, limit := normalizeCredits(in, fileAmount, "", "creditsConfig", &f)
	if err := f.err(); err != nil {
		return CreditsConfig{}, "", err
	}
	return c, limit, nil
}
