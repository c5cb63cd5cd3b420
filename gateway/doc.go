// Package gateway is the core of the chat gateway: it lets an agent in a chat host buy and sell
// paid requests. It has the registry of tools, checks their arguments, asks for confirmations,
// signs people in, gives the balance as context for a prompt, and serves the paid endpoint.
//
// A plugin of a chat host forwards to it over HTTP ([Core.Handler]); any other host reaches the
// same tools over MCP. One core has one identity: the API key of the operator's account.
//
// Decision 51 says why the rules are here and not in a plugin.
package gateway
