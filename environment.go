package toll

// Environment is sandbox or live. Keys and records of one environment are not valid in the other.
type Environment string

// Environments.
const (
	Sandbox Environment = "sandbox" // testing and development, Base Sepolia
	Live    Environment = "live"    // production, Base Mainnet
)

// Network returns the CAIP-2 id of the chain of the environment.
func (e Environment) Network() string {
	if e == Live {
		return "eip155:8453"
	}
	return "eip155:84532"
}

// ChainID returns the EIP-155 chain id of the environment.
func (e Environment) ChainID() int64 {
	if e == Live {
		return 8453
	}
	return 84532
}

// CardNetwork returns the network of card plans in x402 objects, "stripe:sandbox" or "stripe:live".
func (e Environment) CardNetwork() string { return "stripe:" + string(e) }
