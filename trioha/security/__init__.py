"""Access control: the declared requirement of each request, the accounts, and the check.

Theory of operation. Every request code of every port has one declared requirement
(`requirements`). A node does not start with a handler whose code has none. Access control is off
unless `aclEnable` is set; then nothing here runs while requests are served.

With access control on, a `Guard` puts a check before each handler, once, when the node is made. The
check follows RocketMQ 4.9 (PlainAccessValidator, PlainPermissionManager), in this order:

1. The global white list: a peer at such an address may do everything.
2. The account that the field ``AccessKey`` names. Its own white list also admits without a
   signature.
3. The signature: HMAC-SHA1 with the account's secret, over the values of all other fields in the
   order of their names, then the body (`signature`). Fields are looked at before the body, and the
   body is not decoded for a caller whose signature is wrong.
4. The requirement: an admin account, or the permissions for the topics and groups that the request
   names (`accounts`).

Retry topics belong to their group: ``%RETRY%group`` asks for the group's permission.

Where this is stricter than Java's broker, which asks nothing but a signature for most codes:
requests of operators need an admin account, a batch or a reply needs its topic's permission, and a
message that is named by its offset needs the permission of the topic that it is stored in. A
request for a foreign retry topic under the name of an own group is rejected too.

What the protocol itself does not give: a signature covers neither the request code nor the names of
the fields nor the time, so that a recorded request can be sent again; and nothing is encrypted.

Nodes sign what they ask of one another with the first admin account of their own file
(`node_signer`). A request that a node forwards was checked where its client is connected; the node
puts its own signature in place of the client's.
"""
