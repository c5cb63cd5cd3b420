// Package gateway is the core of the chat gateway, with which an agent in a chat host buys and sells paid requests.
//
// [New] returns a [Core]. [Core.Call] runs one of its tools: it checks the arguments and requires confirmations before it
// spends. [Core.Handler] serves the plugins of chat hosts, MCP, and the paid endpoint; [Core.ServeMCP] serves MCP over a pair
// of streams. A core acts for one account: the account of a browser login or of the configured API key.
//
// Decision 51 explains why these rules are in the core and not in a plugin.
package gateway
