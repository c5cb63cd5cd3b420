package toll

// Codes of errors. The number of a code never changes its meaning; codes from .0900 up are this
// project's own, the others carry the meaning that deployed clients know (wire contract, section 3).
const (
	CodeNotAuthenticated         Code = "BCK.AUTH.0002"       // An API key is needed, and this one is missing, unknown, expired or revoked.
	CodeForbidden                Code = "BCK.AUTH.0003"       // The caller may not do this to this record.
	CodeBadAuthorization         Code = "BCK.AUTH.0012"       // The Authorization header is not of the form Bearer <key>.
	CodeKeyNotFound              Code = "BCK.APIKEY.0002"     // The caller has no API key with this id.
	CodeKeyAlreadyRevoked        Code = "BCK.APIKEY.0003"     // The API key is already revoked.
	CodeKeyForeign               Code = "BCK.APIKEY.0004"     // This is not an API key of this service.
	CodeKeyExpiryPast            Code = "BCK.APIKEY.0010"     // The expiry of an API key must lie in the future.
	CodeKeyMalformed             Code = "BCK.APIKEY.0013"     // The API key is not a JWT, or lacks sub, jti or o11y.
	CodeKeyNothingToUpdate       Code = "BCK.APIKEY.0016"     // The update names no member that can be updated.
	CodeKeyWrongEnvironment      Code = "BCK.APIKEY.0901"     // The API key belongs to another environment.
	CodeVersionUnknown           Code = "BCK.VERSION.0001"    // The API version is unknown or out of range.
	CodeVersionGateFailed        Code = "BCK.VERSION.0002"    // A version gate could not reshape a body.
	CodeBadUUID                  Code = "BCK.COMMON.0025"     // A UUID is malformed.
	CodeBadID                    Code = "BCK.COMMON.0026"     // An id is not the decimal text of a uint256 above zero.
	CodeExists                   Code = "BCK.COMMON.0027"     // The same thing exists already.
	CodeDatabaseUnavailable      Code = "BCK.COMMON.0029"     // The database is unavailable.
	CodeQueryTooLong             Code = "BCK.COMMON.0034"     // A query parameter is too long.
	CodeIdempotencyMismatch      Code = "BCK.COMMON.0901"     // This Idempotency-Key was used before with another body.
	CodeIdempotencyRunning       Code = "BCK.COMMON.0902"     // A call with this Idempotency-Key is still running.
	CodeBadAddress               Code = "BCK.COMMON.0903"     // An address is not 0x and 40 hexadecimal digits.
	CodeBadPage                  Code = "BCK.COMMON.0904"     // A paging or sorting parameter is malformed or out of range.
	CodeMintNotPositive          Code = "BCK.CREDITS.0001"    // The amount to mint must be positive.
	CodeInsufficientCredits      Code = "BCK.CREDITS.0003"    // There are not enough credits, and no top-up is possible.
	CodeCreditsOverflow          Code = "BCK.CREDITS.0901"    // The balance would exceed 2^63-1 credits.
	CodePlanNotFound             Code = "BCK.PROTOCOL.0003"   // No plan has this id.
	CodeAgentNotFound            Code = "BCK.PROTOCOL.0004"   // No agent has this id.
	CodeOrderLacksMoney          Code = "BCK.PROTOCOL.0011"   // The payer lacks the money for this order.
	CodeNotAgentOwner            Code = "BCK.PROTOCOL.0016"   // The caller does not own this agent.
	CodeNotPlanOwner             Code = "BCK.PROTOCOL.0017"   // The caller does not own this plan.
	CodeAgentListedAlready       Code = "BCK.PROTOCOL.0018"   // The agent is in the wanted listing state already.
	CodePlanListedAlready        Code = "BCK.PROTOCOL.0019"   // The plan is in the wanted listing state already.
	CodePlansOfUnknownAgent      Code = "BCK.PROTOCOL.0023"   // No agent has this id, so it has no plans.
	CodeAgentsOfUnknownPlan      Code = "BCK.PROTOCOL.0024"   // No plan has this id, so it has no agents.
	CodePlanNotAttached          Code = "BCK.PROTOCOL.0026"   // The agent does not have this plan.
	CodeEndpointMismatch         Code = "BCK.PROTOCOL.0031"   // The url and verb match no endpoint of the agent.
	CodeSubTaskRequestUnknown    Code = "BCK.PROTOCOL.0037"   // No agent request has this id.
	CodeAmountAndMargin          Code = "BCK.PROTOCOL.0042"   // Only one of maxAmount and marginPercent may be sent.
	CodeMarginOnFixedPlan        Code = "BCK.PROTOCOL.0043"   // marginPercent needs a plan whose credits per request are dynamic.
	CodeMarginWithoutSubTasks    Code = "BCK.PROTOCOL.0044"   // marginPercent needs a recorded sub-task cost, and the request has none.
	CodeFiatPriceTooHigh         Code = "BCK.PROTOCOL.0046"   // A fiat price may be at most 999,999.99.
	CodeFiatPriceTooLow          Code = "BCK.PROTOCOL.0047"   // A fiat price must be at least 1.00.
	CodeFiatPlanOnCryptoRoute    Code = "BCK.PROTOCOL.0050"   // A fiat plan is bought by checkout, not by this order route.
	CodeWrongNetwork             Code = "BCK.PROTOCOL.0052"   // The network is not the one of this environment.
	CodeTrialUsed                Code = "BCK.PROTOCOL.0056"   // This address has bought this trial plan before.
	CodeBadNumber                Code = "BCK.PROTOCOL.0057"   // A number cannot be taken exactly, or is out of range.
	CodePlanSoldOut              Code = "BCK.PROTOCOL.0901"   // The plan has reached its maximum number of orders.
	CodePlanUnlisted             Code = "BCK.PROTOCOL.0902"   // The plan is unlisted and takes no new orders.
	CodeBadCreditsConfig         Code = "BCK.PROTOCOL.0904"   // The credits configuration contradicts itself.
	CodeBadPriceConfig           Code = "BCK.PROTOCOL.0905"   // The price configuration contradicts itself.
	CodeNonceConflict            Code = "BCK.PROTOCOL.0906"   // This registration nonce was used before with another body.
	CodeOrderNotFound            Code = "BCK.PROTOCOL.0908"   // No order has this id.
	CodePlanTermsFixed           Code = "BCK.PROTOCOL.0909"   // Price and credits of a registered plan cannot be changed.
	CodePaymentAgentNotFound     Code = "BCK.X402.0001"       // The agent named in the payment does not exist.
	CodePaymentPlanNotFound      Code = "BCK.X402.0002"       // The plan named in the payment does not exist.
	CodeAgentMismatch            Code = "BCK.X402.0003"       // The plan is not attached to the agent, or the access token is for another agent.
	CodeTokenSignature           Code = "BCK.X402.0005"       // The access token does not verify: signature, issuer, audience or an inner contradiction.
	CodeTopUpRefused             Code = "BCK.X402.0008"       // The payment rail refused the automatic top-up.
	CodeTokenUndecodable         Code = "BCK.X402.0010"       // The access token is in none of the three accepted forms.
	CodeBadRequirements          Code = "BCK.X402.0012"       // The payment requirements cannot be used.
	CodePlanMismatch             Code = "BCK.X402.0013"       // No entry of accepts fits the access token.
	CodeDelegationPlanMismatch   Code = "BCK.X402.0014"       // The delegation is bound to another plan.
	CodePermissionNotFound       Code = "BCK.X402.0015"       // The caller has no permission with this hash.
	CodePermissionAlreadyRevoked Code = "BCK.X402.0016"       // The permission is already revoked.
	CodeDelegationNotFound       Code = "BCK.X402.0019"       // The delegation of the access token does not exist.
	CodeDelegationRevoked        Code = "BCK.X402.0020"       // The delegation of the access token is revoked.
	CodeDelegationExpired        Code = "BCK.X402.0021"       // The delegation of the access token has expired.
	CodeDelegationExhausted      Code = "BCK.X402.0022"       // The delegation of the access token is used up.
	CodeDelegationInsufficient   Code = "BCK.X402.0023"       // The delegation of the access token is too small for the order.
	CodePermissionUnknown        Code = "BCK.X402.0024"       // The access token belongs to no known permission.
	CodePermissionRevoked        Code = "BCK.X402.0025"       // The access token is revoked.
	CodePermissionExpired        Code = "BCK.X402.0026"       // The access token has expired.
	CodePaymentMethodUnusable    Code = "BCK.X402.0027"       // The payment method cannot be used.
	CodePaymentMethodRevoked     Code = "BCK.X402.0028"       // The payment method is revoked.
	CodePaymentMethodNotAllowed  Code = "BCK.X402.0029"       // The payment method is not allowed for this API key.
	CodePaymentRequired          Code = "BCK.X402.0030"       // A payment is required: an access token, or what its scheme needs, is missing.
	CodeUnsupportedScheme        Code = "BCK.X402.0034"       // The scheme, network or currency is not served here.
	CodeRedemptionLimit          Code = "BCK.X402.0901"       // The redemption limit of the access token is reached.
	CodeOrderLimit               Code = "BCK.X402.0902"       // The order limit of the access token is reached.
	CodeReleaseOfSettled         Code = "BCK.X402.0903"       // A settled request cannot be released.
	CodeRequestUsed              Code = "BCK.X402.0904"       // This request is in flight or used.
	CodeHoldExpired              Code = "BCK.X402.0905"       // The hold has lapsed, and the access token ended more than an hour ago.
	CodeSettleConflict           Code = "BCK.X402.0906"       // This agentRequestId was used before with other content.
	CodeTooManyHolds             Code = "BCK.X402.0907"       // There are too many open holds for this access token or account.
	CodeAmountOutOfRange         Code = "BCK.X402.0908"       // The amount is above what was held, or out of range.
	CodeSettlementNotFound       Code = "BCK.X402.0909"       // No hold or settlement has this id.
	CodeBodyDialect              Code = "BCK.X402.0910"       // The body needs exactly one of x402AccessToken and paymentPayload.
	CodePlanPeriodOver           Code = "BCK.X402.0911"       // The period of the time plan is over.
	CodeAgentUnlisted            Code = "BCK.X402.0912"       // The agent is unlisted.
	CodeSettlementPending        Code = "BCK.X402.0914"       // The outcome is not known yet; repeat the same call with the same id.
	CodeBadX402Version           Code = "BCK.X402.0915"       // x402Version must be 2.
	CodeDeprecatedForm           Code = "BCK.X402.0920"       // A deprecated form was used.
	CodePaymentMethodNotFound    Code = "BCK.DELEGATION.0001" // The caller has no payment method with this id.
	CodeUnknownDelegation        Code = "BCK.DELEGATION.0002" // The caller has no delegation with this id.
	CodeBadProvider              Code = "BCK.DELEGATION.0003" // The provider is unknown.
	CodeDelegationIncomplete     Code = "BCK.DELEGATION.0004" // A required member of the delegation is missing.
	CodeProviderMismatch         Code = "BCK.DELEGATION.0007" // The provider does not fit the stored payment method.
	CodeChainUnreachable         Code = "BCK.CHAIN.0001"      // No chain endpoint is available, so crypto plans cannot be ordered now.
	CodeChainContracts           Code = "BCK.CHAIN.0002"      // The contracts on the chain do not match.
	CodeChainBalance             Code = "BCK.CHAIN.0003"      // The balance of the account on the chain is too low.
	CodeChainOrderConflict       Code = "BCK.CHAIN.0005"      // The order was signed before with other content.
	CodeChainFailed              Code = "BCK.CHAIN.0006"      // The operation on the chain failed for an unexpected reason.
	CodeChainRelayerLow          Code = "BCK.CHAIN.0007"      // The relayer's balance is too low.
	CodeChainFeeCap              Code = "BCK.CHAIN.0008"      // The base fee is above the cap.
	CodeChainToken               Code = "BCK.CHAIN.0009"      // The token is not on the operator's list.
	CodeChainNativeDelegation    Code = "BCK.CHAIN.0010"      // A plan priced in the native token cannot use a delegation in cents.
	CodeChainForeignCode         Code = "BCK.CHAIN.0011"      // The account carries foreign code.
	CodeChainSignature           Code = "BCK.CHAIN.0012"      // The signature of the delegation does not verify.
	CodeChainPaused              Code = "BCK.CHAIN.0013"      // The delegation manager is paused.
	CodeBurnNotMirrored          Code = "BCK.CHAIN.0014"      // The burn is unknown or not mirrored.
	CodeChainSignerCap           Code = "BCK.CHAIN.0015"      // The signer has reached its cap.
	CodeCheckoutFailed           Code = "BCK.STRIPE.0002"     // The checkout session could not be made.
	CodeCheckoutWrongPlan        Code = "BCK.STRIPE.0010"     // Only a fiat plan can be bought by checkout.
	CodeCardUnreachable          Code = "BCK.STRIPE.0023"     // The card processor is not reachable.
	CodeCardOff                  Code = "BCK.STRIPE.0024"     // Card payments are not configured here.
	CodeWebhookSignature         Code = "BCK.STRIPE.0901"     // The webhook signature is wrong or too old.
	CodeWebhookNotFound          Code = "BCK.WEBHOOK.0901"    // The caller has no webhook with this id.
	CodeWebhookURL               Code = "BCK.WEBHOOK.0902"    // The webhook url is not allowed.
	CodeWebhookTooMany           Code = "BCK.WEBHOOK.0903"    // There are too many webhooks.
	CodeBadRequest               Code = "BCK.HTTP.400"        // The request is malformed.
	CodePathNotFound             Code = "BCK.HTTP.404"        // No such path.
	CodeMethodNotAllowed         Code = "BCK.HTTP.405"        // This path does not take this method.
	CodeRequestTimeout           Code = "BCK.HTTP.408"        // The body arrived too slowly.
	CodeGone                     Code = "BCK.HTTP.410"        // This path is retired.
	CodeBodyTooLarge             Code = "BCK.HTTP.413"        // The body is too large.
	CodeURITooLong               Code = "BCK.HTTP.414"        // The URL is too long.
	CodeMediaType                Code = "BCK.HTTP.415"        // The body must be JSON.
	CodeHeadersTooLarge          Code = "BCK.HTTP.431"        // The headers are too large.
	CodeRateLimited              Code = "BCK.HTTP.429"        // Too many requests.
	CodeInternal                 Code = "BCK.HTTP.500"        // An unexpected failure happened.
	CodeUnavailable              Code = "BCK.HTTP.503"        // The service is not ready, shutting down or overloaded.
)

// codes is the one table of error codes: HTTP status, category, whether a repeat of the same call can
// succeed, and the default message (one sentence, safe to show).
var codes = []CodeInfo{
	{Code: CodeNotAuthenticated, Status: 401, Category: CategoryAuth, Retryable: false, Message: "An API key is needed, and this one is missing, unknown, expired or revoked."},
	{Code: CodeForbidden, Status: 403, Category: CategoryAuth, Retryable: false, Message: "The caller may not do this to this record."},
	{Code: CodeBadAuthorization, Status: 401, Category: CategoryAuth, Retryable: false, Message: "The Authorization header is not of the form Bearer <key>."},
	{Code: CodeKeyNotFound, Status: 404, Category: CategoryAuth, Retryable: false, Message: "The caller has no API key with this id."},
	{Code: CodeKeyAlreadyRevoked, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "The API key is already revoked."},
	{Code: CodeKeyForeign, Status: 401, Category: CategoryAuth, Retryable: false, Message: "This is not an API key of this service."},
	{Code: CodeKeyExpiryPast, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The expiry of an API key must lie in the future."},
	{Code: CodeKeyMalformed, Status: 401, Category: CategoryAuth, Retryable: false, Message: "The API key is not a JWT, or lacks sub, jti or o11y."},
	{Code: CodeKeyNothingToUpdate, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The update names no member that can be updated."},
	{Code: CodeKeyWrongEnvironment, Status: 401, Category: CategoryAuth, Retryable: false, Message: "The API key belongs to another environment."},
	{Code: CodeVersionUnknown, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The API version is unknown or out of range."},
	{Code: CodeVersionGateFailed, Status: 500, Category: CategoryInternal, Retryable: false, Message: "A version gate could not reshape a body."},
	{Code: CodeBadUUID, Status: 400, Category: CategoryValidation, Retryable: false, Message: "A UUID is malformed."},
	{Code: CodeBadID, Status: 400, Category: CategoryValidation, Retryable: false, Message: "An id is not the decimal text of a uint256 above zero."},
	{Code: CodeExists, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "The same thing exists already."},
	{Code: CodeDatabaseUnavailable, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "The database is unavailable."},
	{Code: CodeQueryTooLong, Status: 400, Category: CategoryValidation, Retryable: false, Message: "A query parameter is too long."},
	{Code: CodeIdempotencyMismatch, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "This Idempotency-Key was used before with another body."},
	{Code: CodeIdempotencyRunning, Status: 409, Category: CategoryBusiness, Retryable: true, Message: "A call with this Idempotency-Key is still running."},
	{Code: CodeBadAddress, Status: 400, Category: CategoryValidation, Retryable: false, Message: "An address is not 0x and 40 hexadecimal digits."},
	{Code: CodeBadPage, Status: 400, Category: CategoryValidation, Retryable: false, Message: "A paging or sorting parameter is malformed or out of range."},
	{Code: CodeMintNotPositive, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "The amount to mint must be positive."},
	{Code: CodeInsufficientCredits, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "There are not enough credits, and no top-up is possible."},
	{Code: CodeCreditsOverflow, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The balance would exceed 2^63-1 credits."},
	{Code: CodePlanNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "No plan has this id."},
	{Code: CodeAgentNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "No agent has this id."},
	{Code: CodeOrderLacksMoney, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The payer lacks the money for this order."},
	{Code: CodeNotAgentOwner, Status: 403, Category: CategoryBusiness, Retryable: false, Message: "The caller does not own this agent."},
	{Code: CodeNotPlanOwner, Status: 403, Category: CategoryBusiness, Retryable: false, Message: "The caller does not own this plan."},
	{Code: CodeAgentListedAlready, Status: 200, Category: CategoryBusiness, Retryable: false, Message: "The agent is in the wanted listing state already."},
	{Code: CodePlanListedAlready, Status: 200, Category: CategoryBusiness, Retryable: false, Message: "The plan is in the wanted listing state already."},
	{Code: CodePlansOfUnknownAgent, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "No agent has this id, so it has no plans."},
	{Code: CodeAgentsOfUnknownPlan, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "No plan has this id, so it has no agents."},
	{Code: CodePlanNotAttached, Status: 403, Category: CategoryBusiness, Retryable: false, Message: "The agent does not have this plan."},
	{Code: CodeEndpointMismatch, Status: 403, Category: CategoryBusiness, Retryable: false, Message: "The url and verb match no endpoint of the agent."},
	{Code: CodeSubTaskRequestUnknown, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "No agent request has this id."},
	{Code: CodeAmountAndMargin, Status: 403, Category: CategoryValidation, Retryable: false, Message: "Only one of maxAmount and marginPercent may be sent."},
	{Code: CodeMarginOnFixedPlan, Status: 403, Category: CategoryBusiness, Retryable: false, Message: "marginPercent needs a plan whose credits per request are dynamic."},
	{Code: CodeMarginWithoutSubTasks, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "marginPercent needs a recorded sub-task cost, and the request has none."},
	{Code: CodeFiatPriceTooHigh, Status: 400, Category: CategoryValidation, Retryable: false, Message: "A fiat price may be at most 999,999.99."},
	{Code: CodeFiatPriceTooLow, Status: 400, Category: CategoryValidation, Retryable: false, Message: "A fiat price must be at least 1.00."},
	{Code: CodeFiatPlanOnCryptoRoute, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "A fiat plan is bought by checkout, not by this order route."},
	{Code: CodeWrongNetwork, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The network is not the one of this environment."},
	{Code: CodeTrialUsed, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "This address has bought this trial plan before."},
	{Code: CodeBadNumber, Status: 400, Category: CategoryValidation, Retryable: false, Message: "A number cannot be taken exactly, or is out of range."},
	{Code: CodePlanSoldOut, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "The plan has reached its maximum number of orders."},
	{Code: CodePlanUnlisted, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "The plan is unlisted and takes no new orders."},
	{Code: CodeBadCreditsConfig, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The credits configuration contradicts itself."},
	{Code: CodeBadPriceConfig, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The price configuration contradicts itself."},
	{Code: CodeNonceConflict, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "This registration nonce was used before with another body."},
	{Code: CodeOrderNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "No order has this id."},
	{Code: CodePlanTermsFixed, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "Price and credits of a registered plan cannot be changed."},
	{Code: CodePaymentAgentNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "The agent named in the payment does not exist."},
	{Code: CodePaymentPlanNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "The plan named in the payment does not exist."},
	{Code: CodeAgentMismatch, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "The plan is not attached to the agent, or the access token is for another agent."},
	{Code: CodeTokenSignature, Status: 402, Category: CategoryAuth, Retryable: false, Message: "The access token does not verify: signature, issuer, audience or an inner contradiction."},
	{Code: CodeTopUpRefused, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The payment rail refused the automatic top-up."},
	{Code: CodeTokenUndecodable, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The access token is in none of the three accepted forms."},
	{Code: CodeBadRequirements, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "The payment requirements cannot be used."},
	{Code: CodePlanMismatch, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "No entry of accepts fits the access token."},
	{Code: CodeDelegationPlanMismatch, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "The delegation is bound to another plan."},
	{Code: CodePermissionNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "The caller has no permission with this hash."},
	{Code: CodePermissionAlreadyRevoked, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "The permission is already revoked."},
	{Code: CodeDelegationNotFound, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The delegation of the access token does not exist."},
	{Code: CodeDelegationRevoked, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The delegation of the access token is revoked."},
	{Code: CodeDelegationExpired, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The delegation of the access token has expired."},
	{Code: CodeDelegationExhausted, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The delegation of the access token is used up."},
	{Code: CodeDelegationInsufficient, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The delegation of the access token is too small for the order."},
	{Code: CodePermissionUnknown, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The access token belongs to no known permission."},
	{Code: CodePermissionRevoked, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The access token is revoked."},
	{Code: CodePermissionExpired, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The access token has expired."},
	{Code: CodePaymentMethodUnusable, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The payment method cannot be used."},
	{Code: CodePaymentMethodRevoked, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The payment method is revoked."},
	{Code: CodePaymentMethodNotAllowed, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The payment method is not allowed for this API key."},
	{Code: CodePaymentRequired, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "A payment is required: an access token, or what its scheme needs, is missing."},
	{Code: CodeUnsupportedScheme, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The scheme, network or currency is not served here."},
	{Code: CodeRedemptionLimit, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The redemption limit of the access token is reached."},
	{Code: CodeOrderLimit, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The order limit of the access token is reached."},
	{Code: CodeReleaseOfSettled, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "A settled request cannot be released."},
	{Code: CodeRequestUsed, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "This request is in flight or used."},
	{Code: CodeHoldExpired, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The hold has lapsed, and the access token ended more than an hour ago."},
	{Code: CodeSettleConflict, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "This agentRequestId was used before with other content."},
	{Code: CodeTooManyHolds, Status: 429, Category: CategoryBusiness, Retryable: false, Message: "There are too many open holds for this access token or account."},
	{Code: CodeAmountOutOfRange, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The amount is above what was held, or out of range."},
	{Code: CodeSettlementNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "No hold or settlement has this id."},
	{Code: CodeBodyDialect, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The body needs exactly one of x402AccessToken and paymentPayload."},
	{Code: CodePlanPeriodOver, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The period of the time plan is over."},
	{Code: CodeAgentUnlisted, Status: 403, Category: CategoryBusiness, Retryable: false, Message: "The agent is unlisted."},
	{Code: CodeSettlementPending, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "The outcome is not known yet; repeat the same call with the same id."},
	{Code: CodeBadX402Version, Status: 400, Category: CategoryValidation, Retryable: false, Message: "x402Version must be 2."},
	{Code: CodeDeprecatedForm, Status: 200, Category: CategoryBusiness, Retryable: false, Message: "A deprecated form was used."},
	{Code: CodePaymentMethodNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "The caller has no payment method with this id."},
	{Code: CodeUnknownDelegation, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "The caller has no delegation with this id."},
	{Code: CodeBadProvider, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The provider is unknown."},
	{Code: CodeDelegationIncomplete, Status: 400, Category: CategoryValidation, Retryable: false, Message: "A required member of the delegation is missing."},
	{Code: CodeProviderMismatch, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "The provider does not fit the stored payment method."},
	{Code: CodeChainUnreachable, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "No chain endpoint is available, so crypto plans cannot be ordered now."},
	{Code: CodeChainContracts, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "The contracts on the chain do not match."},
	{Code: CodeChainBalance, Status: 402, Category: CategoryBusiness, Retryable: false, Message: "The balance of the account on the chain is too low."},
	{Code: CodeChainOrderConflict, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "The order was signed before with other content."},
	{Code: CodeChainFailed, Status: 502, Category: CategoryIntegration, Retryable: false, Message: "The operation on the chain failed for an unexpected reason."},
	{Code: CodeChainRelayerLow, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "The relayer's balance is too low."},
	{Code: CodeChainFeeCap, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "The base fee is above the cap."},
	{Code: CodeChainToken, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The token is not on the operator's list."},
	{Code: CodeChainNativeDelegation, Status: 400, Category: CategoryValidation, Retryable: false, Message: "A plan priced in the native token cannot use a delegation in cents."},
	{Code: CodeChainForeignCode, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "The account carries foreign code."},
	{Code: CodeChainSignature, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The signature of the delegation does not verify."},
	{Code: CodeChainPaused, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "The delegation manager is paused."},
	{Code: CodeBurnNotMirrored, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "The burn is unknown or not mirrored."},
	{Code: CodeChainSignerCap, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "The signer has reached its cap."},
	{Code: CodeCheckoutFailed, Status: 400, Category: CategoryIntegration, Retryable: false, Message: "The checkout session could not be made."},
	{Code: CodeCheckoutWrongPlan, Status: 400, Category: CategoryBusiness, Retryable: false, Message: "Only a fiat plan can be bought by checkout."},
	{Code: CodeCardUnreachable, Status: 503, Category: CategoryIntegration, Retryable: true, Message: "The card processor is not reachable."},
	{Code: CodeCardOff, Status: 424, Category: CategoryIntegration, Retryable: false, Message: "Card payments are not configured here."},
	{Code: CodeWebhookSignature, Status: 400, Category: CategoryAuth, Retryable: false, Message: "The webhook signature is wrong or too old."},
	{Code: CodeWebhookNotFound, Status: 404, Category: CategoryBusiness, Retryable: false, Message: "The caller has no webhook with this id."},
	{Code: CodeWebhookURL, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The webhook url is not allowed."},
	{Code: CodeWebhookTooMany, Status: 409, Category: CategoryBusiness, Retryable: false, Message: "There are too many webhooks."},
	{Code: CodeBadRequest, Status: 400, Category: CategoryValidation, Retryable: false, Message: "The request is malformed."},
	{Code: CodePathNotFound, Status: 404, Category: CategoryValidation, Retryable: false, Message: "No such path."},
	{Code: CodeMethodNotAllowed, Status: 405, Category: CategoryValidation, Retryable: false, Message: "This path does not take this method."},
	{Code: CodeRequestTimeout, Status: 408, Category: CategoryValidation, Retryable: false, Message: "The body arrived too slowly."},
	{Code: CodeGone, Status: 410, Category: CategoryBusiness, Retryable: false, Message: "This path is retired."},
	{Code: CodeBodyTooLarge, Status: 413, Category: CategoryValidation, Retryable: false, Message: "The body is too large."},
	{Code: CodeURITooLong, Status: 414, Category: CategoryValidation, Retryable: false, Message: "The URL is too long."},
	{Code: CodeMediaType, Status: 415, Category: CategoryValidation, Retryable: false, Message: "The body must be JSON."},
	{Code: CodeHeadersTooLarge, Status: 431, Category: CategoryValidation, Retryable: false, Message: "The headers are too large."},
	{Code: CodeRateLimited, Status: 429, Category: CategoryBusiness, Retryable: true, Message: "Too many requests."},
	{Code: CodeInternal, Status: 500, Category: CategoryInternal, Retryable: false, Message: "An unexpected failure happened."},
	{Code: CodeUnavailable, Status: 503, Category: CategoryInternal, Retryable: true, Message: "The service is not ready, shutting down or overloaded."},
}
